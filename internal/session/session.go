package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/ctxerr"
)

// session is a connection that has locks.
type session struct {
	of     *sessions
	conn   Conn
	busy   chan struct{} // holds one while the connection is in use
	ctx    context.Context
	end    context.CancelFunc
	closed chan struct{} // closed when the connection is

	slots  int   // whose locks are on it; these are guarded by base.mu
	single *hold // the only lock of a session that is not shared

	queue   []*request // not sent yet, or withdrawn; see send
	waiting int        // of those, the ones that were not withdrawn
	serves  bool       // serve runs

	flying []*request // the statement that is under way: these belong to serve
	sends  []Step
	at     []int

	mu       sync.Mutex
	trusted  time.Time // until when the server has the connection, whatever happens
	answered time.Time // when the server last answered
	wanted   int       // callers that use the connection, or want to
	uses     int       // how often it was used
	unpark   func()    // ends a Park; nil: there is none
	parks    bool
	expiry   *time.Timer
	isLost   bool
}

// newSession makes a session of a new connection; sent is when the server was first asked.
func (ss *sessions) newSession(conn Conn, sent time.Time) *session {
	s := &session{of: ss, conn: conn, busy: make(chan struct{}, 1), closed: make(chan struct{}), parks: true}
	s.ctx, s.end = context.WithCancel(context.Background())
	s.trust(sent)
	return s
}

// begin keeps the session alive from now on.
func (s *session) begin() {
	s.mu.Lock()
	s.expiry = time.AfterFunc(time.Until(s.trusted), s.expire)
	s.mu.Unlock()
	s.of.keeps.Go(s.keep)
}

// trust records that the server has answered a statement that was sent at the given time. It counts
// the silence from then, or later.
func (s *session) trust(sent time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answered = time.Now()
	if until := sent.Add(s.of.o.IdleTimeout - s.of.o.margin()); until.After(s.trusted) {
		s.trusted = until
	}
}

// trustReply is trust for an answer that grants a lock. If the process was paused, the server may
// have ended the connection before the answer was read. Then it grants nothing.
func (s *session) trustReply(sent time.Time) error {
	s.trust(sent)
	if clock.Past(time.Now(), s.trustedUntil()) {
		return errEnded
	}
	return nil
}

func (s *session) trustedUntil() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trusted
}

// expire ends a session whose silence has lasted so long that the server may have ended it.
func (s *session) expire() {
	s.mu.Lock()
	now := time.Now()
	past := clock.Past(now, s.trusted)
	if !past {
		s.expiry.Reset(s.trusted.Sub(now))
	}
	s.mu.Unlock()
	if past {
		s.lose(dblock.ReasonDisconnected)
	}
}

// use runs fn while no other caller uses the connection.
func (s *session) use(ctx context.Context, fn func() error) error {
	s.mu.Lock()
	s.wanted++
	s.uses++
	if s.unpark != nil {
		s.unpark()
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.wanted--
		s.mu.Unlock()
	}()
	select {
	case s.busy <- struct{}{}:
	case <-ctx.Done():
		return ctxerr.Of(ctx)
	}
	defer func() { <-s.busy }()
	if s.ctx.Err() != nil {
		return errEnded
	}
	return fn()
}

var errEnded = errors.New("dblock: the connection of session locks has ended")

// steps runs one statement until its answer comes, or the session can't be trusted any more. No
// steps are a ping. After an error none of the steps has an effect: undo has found the connection
// alive, or the session has ended.
func (s *session) steps(steps []Step) (done []bool, err error) {
	ctx := s.ctx // it ends when the session can't be trusted any more
	closed := false
	err = s.use(ctx, func() error {
		sent := time.Now()
		defer func() { closed = s.conn.Closed() }()
		done, err = s.run(ctx, steps)
		switch {
		case err == nil:
			err = s.trustReply(sent)
		case !s.conn.Closed():
			err = errors.Join(err, s.undo(ctx, steps))
		}
		return err
	})
	if err != nil && (closed || ctx.Err() != nil || errors.Is(err, errEnded)) {
		s.lose(dblock.ReasonDisconnected)
	}
	if err != nil && ctx.Err() != nil { // of the session, not of a caller: drivers take the one for the other
		err = fmt.Errorf("%w: %v", errEnded, err)
	}
	return done, err
}

// undo takes back what a statement may have done that failed. It asks the server which locks the
// connection has, so that the other locks of the connection live on. The cause of the failure may
// last for a while, but not until a ping is due.
func (s *session) undo(ctx context.Context, steps []Step) error {
	err := errEnded
	until := time.Now().Add(min(undoFor, s.of.o.IdleTimeout/3))
	for pause := time.Millisecond; !s.conn.Closed() && ctx.Err() == nil && time.Now().Before(until); pause = min(2*pause, longestPause) {
		sent := time.Now()
		if err = s.undoOnce(ctx, steps); err == nil {
			s.trust(sent)
			return nil
		}
		s.sleep(pause)
	}
	s.lose(dblock.ReasonDisconnected)
	return fmt.Errorf("dblock: the connection is closed, as the server did not say what it has locked: %w", err)
}

const (
	undoFor      = time.Second // after which a connection is closed that answers with errors only: all callers that share it wait
	longestPause = 50 * time.Millisecond
)

// undoOnce returns nil only if the connection answered: it lives, and none of the steps has an
// effect.
func (s *session) undoOnce(ctx context.Context, steps []Step) error {
	var changes, back []Step
	for _, step := range steps {
		if _, ok := undoes(step.Op); ok {
			changes = append(changes, step)
		}
	}
	if len(changes) == 0 {
		_, err := s.run(ctx, nil)
		return err
	}
	has, err := s.conn.Has(ctx, changes)
	if err != nil {
		return err
	}
	if len(has) != len(changes) {
		return wrongCount(len(has), len(changes))
	}
	for i, step := range changes {
		if op, _ := undoes(step.Op); has[i] {
			back = append(back, Step{step.ID, op})
		}
	}
	if len(back) > 0 {
		_, err = s.run(ctx, back)
	}
	return err
}

// run sends steps to the server and checks that each one is answered. No steps are a ping.
func (s *session) run(ctx context.Context, steps []Step) ([]bool, error) {
	if len(steps) == 0 {
		return nil, s.conn.Ping(ctx)
	}
	done, err := s.conn.Run(ctx, steps)
	if err == nil && len(done) != len(steps) {
		err = wrongCount(len(done), len(steps))
	}
	return done, err
}

func wrongCount(results, steps int) error {
	return fmt.Errorf("dblock: the server sent %d answers to %d steps with session locks", results, steps)
}

// undoes returns the step that leaves a lock not held, or a wait not shown, after op. ok is false
// if op changes nothing.
func undoes(op Op) (back Op, ok bool) {
	switch op {
	case Take, Free, Drop:
		return Drop, true
	case TakeShared, FreeShared, DropShared:
		return DropShared, true
	case Show, Hide:
		return Hide, true
	case Intend, Forgo:
		return Forgo, true
	}
	return op, false
}

// lose ends a session, once, and with it all its locks.
func (s *session) lose(why dblock.Reason) {
	s.mu.Lock()
	again := s.isLost
	s.isLost = true
	if s.expiry != nil {
		s.expiry.Stop()
	}
	s.mu.Unlock()
	if again {
		return
	}
	s.end()
	s.of.mu.Lock()
	s.of.background(func() {
		defer close(s.closed)
		s.busy <- struct{}{} // the caller that uses the connection finds that its context has ended
		s.conn.Close()
	})
	s.of.mu.Unlock()
	s.of.owner.lost(s, why)
}
