// Package task is what the programs have in common: command line, records, and how they are shown.
//
//	PROGRAM produce  BOOTSTRAP TOPIC COUNT CODEC
//	PROGRAM consume  BOOTSTRAP TOPIC COUNT GROUP
//	PROGRAM transact BOOTSTRAP TOPIC COUNT
//	PROGRAM copy     BOOTSTRAP TOPIC COUNT GROUP TARGET
//
// CLIENT_CA, CLIENT_CERTIFICATE (with its key), CLIENT_USER and CLIENT_PASSWORD of the environment
// let it connect with TLS, with a certificate and with SCRAM-SHA-512.
package task

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

const deadline = 60 * time.Second

// Task is one command line, and how to connect.
type Task struct {
	Bootstrap, Topic string
	Count            int
	// TLS is nil for a listener without it.
	TLS *tls.Config
	// User is empty for a listener without logins.
	User, Password string
	rest           []string
}

// Record is what every client sends and receives.
type Record struct {
	Key, Value, Index string
}

// Run does one kind of task.
type Run func(context.Context, Task) error

// Main runs what the command line names; an error ends the program with status 1.
func Main(runs map[string]Run) {
	if err := run(runs); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(runs map[string]Run) error {
	if len(os.Args) < 5 || runs[os.Args[1]] == nil {
		return fmt.Errorf("cannot do %q", os.Args[1:])
	}
	count, err := strconv.Atoi(os.Args[4])
	if err != nil {
		return err
	}
	encryption, err := encryption(os.Getenv("CLIENT_CA"), os.Getenv("CLIENT_CERTIFICATE"))
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	return runs[os.Args[1]](ctx, Task{
		Bootstrap: os.Args[2],
		Topic:     os.Args[3],
		Count:     count,
		TLS:       encryption,
		User:      os.Getenv("CLIENT_USER"),
		Password:  os.Getenv("CLIENT_PASSWORD"),
		rest:      os.Args[5:],
	})
}

// encryption makes the settings of TLS from the names of files; none without an authority.
func encryption(authority, certificate string) (*tls.Config, error) {
	if authority == "" {
		return nil, nil
	}
	trusted, err := os.ReadFile(authority)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(trusted)
	if certificate != "" {
		own, err := tls.LoadX509KeyPair(certificate, certificate)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config, nil
}

// Codec names the compression of what is produced.
func (t Task) Codec() string { return t.rest[0] }

// Group names the group that reads.
func (t Task) Group() string { return t.rest[0] }

// Target names the topic that is copied to.
func (t Task) Target() string { return t.rest[1] }

// Records makes the records of one call; prefix begins their values.
func (t Task) Records(prefix string) []Record {
	made := make([]Record, t.Count)
	for i := range made {
		made[i] = Record{
			Key:   fmt.Sprintf("key-%d", i%10),
			Value: fmt.Sprintf("%s-%d", prefix, i),
			Index: strconv.Itoa(i),
		}
	}
	return made
}

// Show prints one received record as a line, at once.
func Show(partition int32, offset int64, record Record) {
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	fmt.Fprintf(out, "%d\t%d\t%s\t%s\t%s\n",
		partition, offset, record.Key, record.Value, record.Index)
}
