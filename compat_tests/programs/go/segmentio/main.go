// Command segmentio does its tasks with segmentio/kafka-go, which has no transactions.
package main

import (
	"context"
	"errors"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/scram"

	"kledger.test/programs/task"
)

var codecs = map[string]kafka.Compression{
	"none":   0,
	"gzip":   kafka.Gzip,
	"snappy": kafka.Snappy,
	"lz4":    kafka.Lz4,
	"zstd":   kafka.Zstd,
}

func main() {
	task.Main(map[string]task.Run{"produce": produce, "consume": consume})
}

// login is nil for a listener without logins.
func login(t task.Task) (sasl.Mechanism, error) {
	if t.User == "" {
		return nil, nil
	}
	return scram.Mechanism(scram.SHA512, t.User, t.Password)
}

func produce(ctx context.Context, t task.Task) error {
	mechanism, err := login(t)
	if err != nil {
		return err
	}
	writer := &kafka.Writer{
		Addr:         kafka.TCP(t.Bootstrap),
		Topic:        t.Topic,
		RequiredAcks: kafka.RequireAll,
		Compression:  codecs[t.Codec()],
		Transport:    &kafka.Transport{TLS: t.TLS, SASL: mechanism},
	}
	var messages []kafka.Message
	for _, one := range t.Records("value") {
		messages = append(messages, kafka.Message{
			Key:     []byte(one.Key),
			Value:   []byte(one.Value),
			Headers: []kafka.Header{{Key: "index", Value: []byte(one.Index)}},
		})
	}
	return errors.Join(writer.WriteMessages(ctx, messages...), writer.Close())
}

func consume(ctx context.Context, t task.Task) (err error) {
	mechanism, err := login(t)
	if err != nil {
		return err
	}
	reader := kafka.NewReader(kafka.ReaderConfig{
		Dialer: &kafka.Dialer{
			Timeout: kafka.DefaultDialer.Timeout, TLS: t.TLS, SASLMechanism: mechanism,
		},
		Brokers:        []string{t.Bootstrap},
		Topic:          t.Topic,
		GroupID:        t.Group(),
		StartOffset:    kafka.FirstOffset,
		IsolationLevel: kafka.ReadCommitted,
	})
	defer func() { err = errors.Join(err, reader.Close()) }()
	for range t.Count {
		one, err := reader.FetchMessage(ctx)
		if err != nil {
			return err
		}
		task.Show(int32(one.Partition), one.Offset, task.Record{
			Key: string(one.Key), Value: string(one.Value), Index: index(one.Headers),
		})
		if err := reader.CommitMessages(ctx, one); err != nil {
			return err
		}
	}
	return nil
}

func index(headers []kafka.Header) string {
	for _, one := range headers {
		if one.Key == "index" {
			return string(one.Value)
		}
	}
	return ""
}
