// Command franz does its tasks with franz-go, in the client's own default protocol versions.
package main

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"kledger.test/programs/task"
)

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

func main() {
	task.Main(map[string]task.Run{
		"produce": produce, "consume": consume, "transact": transact, "copy": copyExactlyOnce,
	})
}

func produce(ctx context.Context, t task.Task) error {
	client, err := kgo.NewClient(
		append(connecting(t), kgo.ProducerBatchCompression(codecs[t.Codec()]))...,
	)
	if err != nil {
		return err
	}
	defer client.Close()
	return client.ProduceSync(ctx, records(t, "value")...).FirstErr()
}

func connecting(t task.Task) []kgo.Opt {
	options := []kgo.Opt{kgo.SeedBrokers(t.Bootstrap)}
	if t.TLS != nil {
		options = append(options, kgo.DialTLSConfig(t.TLS))
	}
	if t.User != "" {
		login := scram.Auth{User: t.User, Pass: t.Password}
		options = append(options, kgo.SASL(login.AsSha512Mechanism()))
	}
	return options
}

func records(t task.Task, prefix string) []*kgo.Record {
	var made []*kgo.Record
	for _, one := range t.Records(prefix) {
		made = append(made, &kgo.Record{
			Topic:   t.Topic,
			Key:     []byte(one.Key),
			Value:   []byte(one.Value),
			Headers: []kgo.RecordHeader{{Key: "index", Value: []byte(one.Index)}},
		})
	}
	return made
}

func consume(ctx context.Context, t task.Task) error {
	client, err := kgo.NewClient(reading(t)...)
	if err != nil {
		return err
	}
	defer client.CloseAllowingRebalance()
	for left := t.Count; left > 0; {
		fetched := client.PollRecords(ctx, left)
		if err := fetched.Err(); err != nil {
			return err
		}
		for _, one := range fetched.Records() {
			task.Show(one.Partition, one.Offset, task.Record{
				Key: string(one.Key), Value: string(one.Value), Index: index(one.Headers),
			})
			left--
		}
		if err := client.CommitRecords(ctx, fetched.Records()...); err != nil {
			return err
		}
		client.AllowRebalance()
	}
	return nil
}

func reading(t task.Task) []kgo.Opt {
	return append(connecting(t),
		kgo.ConsumerGroup(t.Group()),
		kgo.ConsumeTopics(t.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
	)
}

func index(headers []kgo.RecordHeader) string {
	for _, one := range headers {
		if one.Key == "index" {
			return string(one.Value)
		}
	}
	return ""
}

func transact(ctx context.Context, t task.Task) error {
	client, err := kgo.NewClient(append(connecting(t), kgo.TransactionalID(t.Topic))...)
	if err != nil {
		return err
	}
	defer client.Close()
	ends := []struct {
		prefix string
		end    kgo.TransactionEndTry
	}{{"kept", kgo.TryCommit}, {"dropped", kgo.TryAbort}, {"later", kgo.TryCommit}}
	for _, one := range ends {
		if err := client.BeginTransaction(); err != nil {
			return err
		}
		if err := client.ProduceSync(ctx, records(t, one.prefix)...).FirstErr(); err != nil {
			return err
		}
		if err := client.EndTransaction(ctx, one.end); err != nil {
			return err
		}
	}
	return nil
}

func copyExactlyOnce(ctx context.Context, t task.Task) error {
	session, err := kgo.NewGroupTransactSession(
		append(reading(t), kgo.TransactionalID(t.Group()))...,
	)
	if err != nil {
		return err
	}
	defer session.Close()
	for left := t.Count; left > 0; {
		fetched := session.PollRecords(ctx, min(left, 20))
		if err := fetched.Err(); err != nil {
			return err
		}
		if err := session.Begin(); err != nil {
			return err
		}
		var sent []*kgo.Record
		for _, one := range fetched.Records() {
			sent = append(sent, &kgo.Record{
				Topic: t.Target(), Key: one.Key, Value: one.Value, Headers: one.Headers,
			})
		}
		if err := session.ProduceSync(ctx, sent...).FirstErr(); err != nil {
			return err
		}
		committed, err := session.End(ctx, kgo.TryCommit)
		if err != nil {
			return err
		}
		if committed {
			left -= len(sent)
		}
		session.AllowRebalance()
	}
	return nil
}
