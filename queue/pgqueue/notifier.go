package pgqueue

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// What is notified: "jobs SENDER:TOPIC", with no sender from a statement of a caller's transaction,
// and "word SENDER:MEMBER". A topic is the hash of a queue's name, as every role of a database can
// listen.
const (
	ofJobs = "jobs "
	ofWord = "word "
)

// notifier is driver.Notifier.
type notifier struct{ d *database }

// findChannel finds the channel of this database's queue. Channels are known to all schemas of a
// database.
func (n notifier) findChannel(ctx context.Context) error {
	number, err := n.d.q.TableNumber(ctx, n.d.pool, n.d.Table("dblock_queue_job").Sanitize())
	n.d.channel = fmt.Sprintf("dblock_queue_%d", number)
	return err
}

// Notify is a transaction of its own: one that notifies holds a lock of the whole server's while it
// commits, and this one has nothing to flush.
func (n notifier) Notify(ctx context.Context, all []driver.Notification) error {
	payloads := make([]string, len(all))
	for i, one := range all {
		payloads[i] = n.d.payload(one)
	}
	return n.d.q.NotifyQueues(ctx, n.d.pool, n.d.channel, payloads)
}

func (d *database) payload(n driver.Notification) string {
	if n.IsOfJobs() {
		return ofJobs + d.sender + ":" + driver.Topic(n.Queue)
	}
	return ofWord + d.sender + ":" + n.Member.String()
}

// Listen receives all but the process's own notifications, which it has acted upon.
func (n notifier) Listen(ctx context.Context, ready func(), received func(driver.Notification)) error {
	return postgres.Listen(ctx, n.d.pool.Pool, n.d.channel, ready, func(payload string) {
		if got, ok := n.d.notification(payload); ok {
			received(got)
		}
	})
}

// notification reads a payload; false if it is this process's own, or anything else.
func (d *database) notification(payload string) (n driver.Notification, ok bool) {
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
		return driver.Notification{Queue: what}, true
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
