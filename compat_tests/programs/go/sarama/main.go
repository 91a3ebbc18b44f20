// Command sarama does its tasks with sarama.
package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"

	"kledger.test/programs/task"
)

var codecs = map[string]sarama.CompressionCodec{
	"none":   sarama.CompressionNone,
	"gzip":   sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy,
	"lz4":    sarama.CompressionLZ4,
	"zstd":   sarama.CompressionZSTD,
}

func main() {
	task.Main(map[string]task.Run{
		"produce": produce, "consume": consume, "transact": transact, "copy": copyExactlyOnce,
	})
}

func settings(t task.Task) *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Net.MaxOpenRequests = 1
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Idempotent = true
	config.Producer.Return.Successes = true
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	config.Net.TLS.Enable = t.TLS != nil
	config.Net.TLS.Config = t.TLS
	if t.User != "" {
		config.Net.SASL.Enable = true
		config.Net.SASL.Mechanism = sarama.SASLTypeSCRAMSHA512
		config.Net.SASL.User = t.User
		config.Net.SASL.Password = t.Password
		config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &login{} }
	}
	return config
}

// login is SCRAM's client, which sarama does not bring.
type login struct{ *scram.ClientConversation }

func (l *login) Begin(user, password, authorizationID string) error {
	client, err := scram.SHA512.NewClient(user, password, authorizationID)
	if err != nil {
		return err
	}
	l.ClientConversation = client.NewConversation()
	return nil
}

func produce(_ context.Context, t task.Task) error {
	config := settings(t)
	config.Producer.Compression = codecs[t.Codec()]
	producer, err := sarama.NewSyncProducer([]string{t.Bootstrap}, config)
	if err != nil {
		return err
	}
	return errors.Join(producer.SendMessages(messages(t, "value")), producer.Close())
}

func messages(t task.Task, prefix string) []*sarama.ProducerMessage {
	var made []*sarama.ProducerMessage
	for _, one := range t.Records(prefix) {
		made = append(made, &sarama.ProducerMessage{
			Topic:   t.Topic,
			Key:     sarama.StringEncoder(one.Key),
			Value:   sarama.StringEncoder(one.Value),
			Headers: []sarama.RecordHeader{{Key: []byte("index"), Value: []byte(one.Index)}},
		})
	}
	return made
}

// member takes part in a group and calls take for one message at a time, until enough is taken.
type member struct {
	lock sync.Mutex
	take func(sarama.ConsumerGroupSession, *sarama.ConsumerMessage) error
	left int
	done context.CancelFunc
}

func (m *member) Setup(sarama.ConsumerGroupSession) error { return nil }

// Cleanup commits what was marked. Once, for a commit waits behind the fetch on its connection.
func (m *member) Cleanup(session sarama.ConsumerGroupSession) error {
	session.Commit()
	return nil
}

func (m *member) ConsumeClaim(
	session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim,
) error {
	for {
		select {
		case one, open := <-claim.Messages():
			if !open {
				return nil
			}
			if err := m.takeOne(session, one); err != nil {
				return err
			}
		case <-session.Context().Done():
			return nil
		}
	}
}

func (m *member) takeOne(
	session sarama.ConsumerGroupSession, one *sarama.ConsumerMessage,
) error {
	m.lock.Lock()
	defer m.lock.Unlock()
	if m.left == 0 {
		return nil
	}
	if err := m.take(session, one); err != nil {
		return err
	}
	if m.left--; m.left == 0 {
		m.done()
	}
	return nil
}

// read runs a member until it has taken as many as the task says.
func read(
	ctx context.Context,
	t task.Task,
	take func(sarama.ConsumerGroupSession, *sarama.ConsumerMessage) error,
) error {
	group, err := sarama.NewConsumerGroup([]string{t.Bootstrap}, t.Group(), settings(t))
	if err != nil {
		return err
	}
	ctx, done := context.WithCancel(ctx)
	defer done()
	one := &member{take: take, left: t.Count, done: done}
	for ctx.Err() == nil {
		if err := group.Consume(ctx, []string{t.Topic}, one); err != nil && ctx.Err() == nil {
			return errors.Join(err, group.Close())
		}
	}
	if one.left > 0 {
		err = fmt.Errorf("%d records did not come", one.left)
	}
	return errors.Join(err, group.Close())
}

func consume(ctx context.Context, t task.Task) error {
	return read(ctx, t, func(s sarama.ConsumerGroupSession, one *sarama.ConsumerMessage) error {
		task.Show(one.Partition, one.Offset, task.Record{
			Key: string(one.Key), Value: string(one.Value), Index: index(one.Headers),
		})
		s.MarkMessage(one, "")
		return nil
	})
}

func index(headers []*sarama.RecordHeader) string {
	for _, one := range headers {
		if string(one.Key) == "index" {
			return string(one.Value)
		}
	}
	return ""
}

func transactional(t task.Task, id string) (sarama.SyncProducer, error) {
	config := settings(t)
	config.Producer.Transaction.ID = id
	return sarama.NewSyncProducer([]string{t.Bootstrap}, config)
}

func transact(_ context.Context, t task.Task) error {
	producer, err := transactional(t, t.Topic)
	if err != nil {
		return err
	}
	ends := []struct {
		prefix string
		end    func() error
	}{{"kept", producer.CommitTxn}, {"dropped", producer.AbortTxn}, {"later", producer.CommitTxn}}
	for _, one := range ends {
		if err := producer.BeginTxn(); err != nil {
			return err
		}
		if err := producer.SendMessages(messages(t, one.prefix)); err != nil {
			return err
		}
		if err := one.end(); err != nil {
			return err
		}
	}
	return producer.Close()
}

func copyExactlyOnce(ctx context.Context, t task.Task) error {
	producer, err := transactional(t, t.Group())
	if err != nil {
		return err
	}
	copyOne := func(_ sarama.ConsumerGroupSession, one *sarama.ConsumerMessage) error {
		if err := producer.BeginTxn(); err != nil {
			return err
		}
		sent := &sarama.ProducerMessage{
			Topic: t.Target(),
			Key:   sarama.ByteEncoder(one.Key),
			Value: sarama.ByteEncoder(one.Value),
			Headers: []sarama.RecordHeader{
				{Key: []byte("index"), Value: []byte(index(one.Headers))},
			},
		}
		if _, _, err := producer.SendMessage(sent); err != nil {
			return err
		}
		if err := producer.AddMessageToTxn(one, t.Group(), nil); err != nil {
			return err
		}
		return producer.CommitTxn()
	}
	return errors.Join(read(ctx, t, copyOne), producer.Close())
}
