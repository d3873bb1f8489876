// A consumer with franz-go that measures itself as benchmarks/light_meter.py does.
//
//	franz-go TASK
//
// TASK is the Task of benchmarks/light_clients.py as JSON.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type task struct {
	Bootstrap  string `json:"bootstrap"`
	Topic      string `json:"topic"`
	Partitions int    `json:"partitions"`
	Group      string `json:"group"`
	CAFile     string `json:"ca_file"`
}

type usage struct {
	cpuUs   float64
	wakeUps int64
}

func used() usage {
	var told syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &told))
	us := (told.Utime.Sec+told.Stime.Sec)*1_000_000 + told.Utime.Usec + told.Stime.Usec
	return usage{float64(us), told.Nvcsw}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func say(facts map[string]any) {
	line, err := json.Marshal(facts)
	must(err)
	fmt.Println(string(line))
}

func options(given task) []kgo.Opt {
	chosen := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(given.Bootstrap, ",")...),
		kgo.ConsumerGroup(given.Group),
		kgo.ConsumeTopics(given.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()),
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
	client, err := kgo.NewClient(options(given)...)
	must(err)
	unseen := map[uint32]bool{}
	for partition := 0; partition < given.Partitions; partition++ {
		unseen[uint32(partition)] = true
	}
	var (
		ready             bool
		phase, finished   uint32
		deliveries, first int
		delays            []int64
		began             usage
	)
	for {
		fetches := client.PollFetches(context.Background())
		now := time.Now().UnixNano()
		var of, records uint32
		for each := fetches.RecordIter(); !each.Done(); {
			value := each.Next().Value
			of, records = binary.BigEndian.Uint32(value), binary.BigEndian.Uint32(value[4:])
			if of == 0 {
				delete(unseen, binary.BigEndian.Uint32(value[8:]))
				continue
			}
			if of != phase {
				phase, deliveries, delays = of, 0, nil
			}
			delays = append(delays, now-int64(binary.BigEndian.Uint64(value[12:])))
		}
		if of == 0 {
			if len(unseen) == 0 && !ready {
				ready = true
				say(map[string]any{"ready": true})
			}
			continue
		}
		deliveries++
		if deliveries == 1 {
			began, first = used(), len(delays)
		}
		if len(delays) < int(records) || finished == phase {
			continue
		}
		finished = phase
		end := used()
		sort.Slice(delays, func(i, j int) bool { return delays[i] < delays[j] })
		say(map[string]any{
			"phase":      phase,
			"deliveries": deliveries,
			"cpu_us":     (end.cpuUs - began.cpuUs) / float64(max(1, len(delays)-first)),
			"wake_ups":   float64(end.wakeUps-began.wakeUps) / float64(max(1, deliveries-1)),
			"p50_ms":     float64(delays[(len(delays)-1)*50/100]) / 1e6,
			"p99_ms":     float64(delays[(len(delays)-1)*99/100]) / 1e6,
		})
	}
}
