// A producer with franz-go that measures itself, for benchmarks/produce.py.
//
//	produce TASK
//
// TASK is JSON. The program prints the time and the CPU time, both in seconds, from the client's creation to its end.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type task struct {
	Bootstrap string `json:"bootstrap"`
	Topic     string `json:"topic"`
	Values    string `json:"values"` // a file with one in a line
	Records   int    `json:"records"`
	Codec     string `json:"codec"`
	CAFile    string `json:"ca_file"`
}

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func cpu() float64 {
	var used syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return float64(used.Utime.Sec+used.Stime.Sec) + float64(used.Utime.Usec+used.Stime.Usec)/1e6
}

func options(given task) []kgo.Opt {
	chosen := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(given.Bootstrap, ",")...),
		kgo.DefaultProduceTopic(given.Topic),
		kgo.ProducerBatchCompression(codecs[given.Codec]),
		kgo.ProducerBatchMaxBytes(1_000_000),
		kgo.ProducerLinger(20 * time.Millisecond),
		kgo.MaxBufferedRecords(1_000_000),
	}
	if given.CAFile != "" {
		authority, err := os.ReadFile(given.CAFile)
		must(err)
		trusted := x509.NewCertPool()
		trusted.AppendCertsFromPEM(authority)
		chosen = append(chosen, kgo.DialTLSConfig(&tls.Config{RootCAs: trusted}))
	}
	return chosen
}

func main() {
	var given task
	must(json.Unmarshal([]byte(os.Args[1]), &given))
	content, err := os.ReadFile(given.Values)
	must(err)
	values := bytes.Split(bytes.TrimSuffix(content, []byte("\n")), []byte("\n"))
	began, before := time.Now(), cpu()
	client, err := kgo.NewClient(options(given)...)
	must(err)
	var delivered atomic.Int64
	for number := 0; number < given.Records; number++ {
		client.Produce(context.Background(), &kgo.Record{Value: values[number%len(values)]}, func(_ *kgo.Record, err error) {
			must(err)
			delivered.Add(1)
		})
	}
	must(client.Flush(context.Background()))
	client.Close()
	if delivered.Load() != int64(given.Records) {
		must(fmt.Errorf("%d delivered of %d", delivered.Load(), given.Records))
	}
	line, err := json.Marshal(map[string]float64{"wall_s": time.Since(began).Seconds(), "cpu_s": cpu() - before})
	must(err)
	fmt.Println(string(line))
}
