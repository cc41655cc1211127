package pgqueue

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/queue/internal/engine"
)

// What is notified: "jobs SENDER:TOPIC", with no sender if a statement of a caller's transaction tells, and "word SENDER:MEMBER". A topic
// is the hash of a queue's name, as every role of a database can listen.
const (
	ofJobs = "jobs "
	ofWord = "word "
)

// findChannel finds what this database's queue is told on. Channels are known to all schemas of a database.
func (d *database) findChannel(ctx context.Context) error {
	number, err := d.q.TableNumber(ctx, d.pool, d.Table("dblock_queue_job").Sanitize())
	d.channel = fmt.Sprintf("dblock_queue_%d", number)
	return err
}

// Tell is a transaction of its own: one that notifies holds a lock of the whole server's while it commits, and this one has nothing to
// flush.
func (d *database) Tell(ctx context.Context, news []engine.News) error {
	payloads := make([]string, len(news))
	for i, n := range news {
		payloads[i] = d.payload(n)
	}
	return d.q.TellNews(ctx, d.pool, d.channel, payloads)
}

func (d *database) payload(n engine.News) string {
	if n.IsOfJobs() {
		return ofJobs + d.sender + ":" + engine.Topic(n.Queue)
	}
	return ofWord + d.sender + ":" + n.Member.String()
}

// Listen hears all but what this process itself tells, which it has acted upon.
func (d *database) Listen(ctx context.Context, ready func(), heard func(engine.News)) error {
	return postgres.Listen(ctx, d.pool.Pool, d.channel, ready, func(payload string) {
		if n, ok := d.news(payload); ok {
			heard(n)
		}
	})
}

// news reads a payload; false if it is this process's own, or anything else.
func (d *database) news(payload string) (n engine.News, ok bool) {
	if len(payload) < len(ofJobs) {
		return n, false
	}
	kind, rest := payload[:len(ofJobs)], payload[len(ofJobs):]
	sender, what, ok := strings.Cut(rest, ":")
	if !ok || sender == d.sender {
		return n, false
	}
	switch kind {
	case ofJobs:
		return engine.News{Queue: what}, true
	case ofWord:
		id, err := hex.DecodeString(what)
		if err != nil || len(id) != len(n.Member) {
			return n, false
		}
		n.Member = member.ID(id)
		return n, !n.IsOfJobs() // no process has the member of zeros
	}
	return n, false
}
