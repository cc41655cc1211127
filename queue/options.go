package queue

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/callback"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/root"
)

// Options of a Queue. The zero value is good for use.
type Options struct {
	// Schema is where the tables are: a Postgres schema, or a MySQL database. Default: the first
	// schema on the search_path that has them when New looks for it, once; or the database that the
	// connection is connected to.
	Schema string

	// TTL is after how long without a heartbeat a process counts as dead, and its jobs go to
	// others. A heartbeat is sent every third of it. It has nothing to do with how long jobs take.
	// Default 10 s; 1 s to 24 h.
	TTL time.Duration

	// Label names this process to operators, as the one that has its jobs: at most 255 bytes.
	Label string

	// Timeout bounds one round trip to the database. Default 10 s; 100 ms to 24 h. A claim that
	// takes longer is repeated for half as many jobs with four times the time, up to 30 s.
	// Statements that promote and rescue jobs have twice the time when they are repeated.
	Timeout time.Duration

	// MaxQueue bounds how many calls of Enqueue may wait in this process; more are refused with
	// dblock.ErrOverloaded. Default 65,536.
	MaxQueue int

	// Codec encodes the arguments of jobs, and decodes them for their handlers. Default: JSON.
	Codec Codec

	// History is for how many days it is kept which jobs have ended, how, and with what payload:
	// Queue.List and Show know of them then. It is written in the transaction that ends the job,
	// and costs about as much as the job itself. Have it the same in all processes that work: days
	// that are older are deleted by one of those that keep any. Default 0: nothing is kept; at most
	// 3,650.
	History int

	// PollOnly has this process neither notify others of jobs nor listen: its workers learn of
	// other processes' jobs when they poll, and theirs of its. It saves a connection of each
	// process that works, and a statement for each burst of jobs. Behind a pooler in transaction
	// mode no notification arrives anyway, which a process finds out, and says in Log. On MySQL and
	// MariaDB it changes nothing: there are no notifications.
	PollOnly bool

	// QuietTx has EnqueueTx send no notification, so that the commit of its transaction takes no
	// lock of the server's. See pgqueue.EnqueueTx.
	QuietTx bool

	Observer Observer
	Log      *slog.Logger // what goes wrong behind the callers' backs; default: nothing
}

const (
	maxHistory = 3650
	minTimeout = 100 * time.Millisecond
	longest    = 24 * time.Hour // a timeout, or until the next look
)

// Codec turns arguments into bytes and back. It must be safe for concurrent use.
type Codec interface {
	Encode(args any) ([]byte, error)
	// Decode fills in what into points to. The data is its own: it may keep or change it.
	Decode(data []byte, into any) error
}

// JSON is the Codec of encoding/json.
type JSON struct{}

// Encode is json.Marshal.
func (JSON) Encode(args any) ([]byte, error) { return json.Marshal(args) }

// Decode is json.Unmarshal.
func (JSON) Decode(data []byte, into any) error { return json.Unmarshal(data, into) }

// withDefaults returns the options with their defaults. A value out of range is dblock.ErrInvalid.
func (o Options) withDefaults() (Options, error) {
	switch {
	case o.Timeout != 0 && (o.Timeout < minTimeout || o.Timeout > longest):
		return o, &dblock.InvalidError{Field: "Options.Timeout", Reason: fmt.Sprintf("%v is not within %v to %v", o.Timeout, minTimeout, longest)}
	case o.History < 0 || o.History > maxHistory:
		return o, &dblock.InvalidError{Field: "Options.History", Reason: fmt.Sprintf("%d is not within 0 to %d days", o.History, maxHistory)}
	case o.MaxQueue < 0:
		return o, &dblock.InvalidError{Field: "Options.MaxQueue", Reason: fmt.Sprintf("%d is negative", o.MaxQueue)}
	}
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)
	o.MaxQueue = cmp.Or(o.MaxQueue, 65_536)
	if o.Codec == nil {
		o.Codec = JSON{}
	}
	o.Log = callback.Logger(o.Log)
	o.Observer = o.Observer.guarded(o.Log)
	_, err := o.member()
	return o, err
}

func (o Options) member() (member.Options, error) {
	return member.Options{
		TTL: o.TTL, Label: o.Label, Log: o.Log, Observer: dblock.Observer{HeartbeatLate: o.Observer.HeartbeatLate},
	}.WithDefaults("Options")
}

// WorkerOptions of Work. The zero value is good for use.
type WorkerOptions struct {
	// Queue is which jobs it takes. Default "default".
	Queue string

	// Concurrency is how many handlers run at once. Default 100; 1 to 100,000.
	Concurrency int

	// Batch is how many jobs are claimed at once at most. Default 500; 1 to 5,000.
	Batch int

	// Ahead is how many jobs may be claimed, at most, before a handler is free for them. As a rule
	// there are as many as the handlers do while two claims take, or eight if a handler takes less
	// time than a claim, and none if it takes as long as ten claims. What has not begun after about
	// a quarter of a second is handed back. Default twice Batch; at most 100,000; negative: a job
	// is claimed when a handler is free for it.
	Ahead int

	// Syncs is how many round trips that end and claim jobs may be under way at once, and so
	// connections. Default 2; 1 to 16.
	Syncs int

	// Poll is how often at least a worker asks for jobs, give or take a half, without a
	// notification. Workers are notified of jobs that are enqueued in their own process, and on
	// Postgres of those of others. A notification may be lost, and then this is how long jobs wait.
	// On MySQL and MariaDB it is how long those wait that another process, or EnqueueTx, has
	// enqueued. Default 200 ms; 10 ms to 1 min.
	Poll time.Duration

	// Timeout is after how long a handler's context ends, unless its own says otherwise (Timeout of
	// Handle). A handler that goes on keeps its job, and its place among Concurrency. Default 1
	// min; negative: never.
	Timeout time.Duration

	// Grace is for how long handlers may go on once Work is to end, before their contexts end.
	// Default 10 s; negative: not at all.
	Grace time.Duration

	// Backoff says how long to wait before a job is tried again; attempt, from 1, is the one that
	// has failed with err. If it panics or exits, it is reported to Observer.Trouble, and the
	// default is taken. Default: Exponential(time.Second, 6*time.Hour).
	Backoff func(attempt int, err error) time.Duration

	// Middleware is around each handler, the first outermost.
	Middleware []Middleware

	// Rescue is how often the worker that is elected for it looks for jobs of processes that are
	// gone, give or take a half. Default a third of Options.TTL; 10 ms to 24 h; negative: it is
	// never elected.
	Rescue time.Duration

	// Promote is how often the worker that is elected for it looks for jobs whose time has come,
	// give or take a half. Default 200 ms; 10 ms to 1 min; negative: it is never elected.
	Promote time.Duration

	// Stats is how often Observer.Stats is called, if it is set, give or take a half. Default 15 s;
	// 100 ms to 24 h.
	Stats time.Duration
}

func (o WorkerOptions) withDefaults(ttl time.Duration) (WorkerOptions, error) {
	o.Queue = cmp.Or(o.Queue, DefaultQueue)
	if err := root.CheckText("WorkerOptions.Queue", o.Queue, 1, MaxNameBytes); err != nil {
		return o, err
	}
	o.Concurrency, o.Batch, o.Syncs = cmp.Or(o.Concurrency, 100), cmp.Or(o.Batch, 500), cmp.Or(o.Syncs, 2)
	o.Ahead = max(cmp.Or(o.Ahead, 2*o.Batch), 0)
	o.Poll, o.Promote = cmp.Or(o.Poll, 200*time.Millisecond), cmp.Or(o.Promote, 200*time.Millisecond)
	for _, n := range []struct {
		field           string
		is, least, most int
	}{
		{"Concurrency", o.Concurrency, 1, 100_000}, {"Batch", o.Batch, 1, 5_000}, {"Syncs", o.Syncs, 1, 16},
		{"Ahead", o.Ahead, 0, 100_000},
	} {
		if n.is < n.least || n.is > n.most {
			reason := fmt.Sprintf("%d is not within %d to %d", n.is, n.least, n.most)
			return o, &dblock.InvalidError{Field: "WorkerOptions." + n.field, Reason: reason}
		}
	}
	o.Rescue, o.Stats = cmp.Or(o.Rescue, ttl/3), cmp.Or(o.Stats, 15*time.Second)
	for _, every := range []struct {
		field           string
		is, least, most time.Duration
		off             bool // if it is negative
	}{
		{"Poll", o.Poll, 10 * time.Millisecond, time.Minute, false}, {"Promote", o.Promote, 10 * time.Millisecond, time.Minute, true},
		{"Rescue", o.Rescue, 10 * time.Millisecond, longest, true}, {"Stats", o.Stats, 100 * time.Millisecond, longest, false},
	} {
		if off := every.off && every.is < 0; !off && (every.is < every.least || every.is > every.most) {
			return o, &dblock.InvalidError{Field: "WorkerOptions." + every.field, Reason: fmt.Sprintf("%v is not within %v to %v", every.is, every.least, every.most)}
		}
	}
	for i, m := range o.Middleware {
		if m == nil {
			return o, &dblock.InvalidError{Field: fmt.Sprintf("WorkerOptions.Middleware[%d]", i), Reason: "it is nil"}
		}
	}
	o.Timeout, o.Grace = cmp.Or(o.Timeout, time.Minute), max(cmp.Or(o.Grace, 10*time.Second), 0)
	if o.Backoff == nil {
		o.Backoff = defaultBackoff
	}
	return o, nil
}

var defaultBackoff = Exponential(time.Second, 6*time.Hour)

// Exponential is a backoff of about first after the first attempt, and twice as long after each
// further one, up to most; each is longer or shorter by up to a quarter, so that jobs that failed
// together come apart. A negative duration counts as 0, and one of more than MaxDelay as that.
func Exponential(first, most time.Duration) func(attempt int, err error) time.Duration {
	first, most = min(max(first, 0), MaxDelay), min(max(most, 0), MaxDelay)
	return func(attempt int, _ error) time.Duration {
		d := most
		if shift := max(attempt, 1) - 1; first <= most>>shift {
			d = first << shift
		}
		return d - d/4 + rand.N(d/2+1)
	}
}
