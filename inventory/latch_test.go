package inventory

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock/inventory/internal/engine"
)

// latched has the keys of an SKU read after a proof, and returns what they are at.
func latchedAt(l *latches, at time.Time, epoch int64, keys ...string) bool {
	one := l.prove("a", epoch, l.news("a"), at)
	if one == nil {
		return false
	}
	l.loaded(one, engine.Keys{Epoch: epoch, Keys: keys}, l.news("a"), at, nil)
	return true
}

func TestLatchRefuses(t *testing.T) {
	t.Parallel()
	l := newLatches(time.Second)
	now := time.Now()
	if l.refuses("a", "new", now) {
		t.Error("nothing was proved, and it refuses")
	}
	if !latchedAt(l, now, 7, "sold", "held") {
		t.Fatal("the keys are not asked for")
	}
	for key, want := range map[string]bool{"new": true, "sold": false, "held": false} {
		if got := l.refuses("a", key, now.Add(999*time.Millisecond)); got != want {
			t.Errorf("%s: refused %v, want %v", key, got, want)
		}
	}
	if l.refuses("b", "new", now) {
		t.Error("another SKU is refused")
	}
	if l.refuses("a", "new", now.Add(time.Second)) {
		t.Error("it goes on for longer than it may")
	}
	if l.prove("a", 7, 0, now.Add(5*time.Second)) != nil {
		t.Error("the keys are asked for again where nothing came in")
	}
	if !l.refuses("a", "new", now.Add(5500*time.Millisecond)) || l.refuses("a", "new", now.Add(6*time.Second)) {
		t.Error("another proof does not have it go on for as long as it may")
	}
	if l.refuses("a", "sold", now.Add(5500*time.Millisecond)) {
		t.Error("the keys are forgotten")
	}
}

// TestLatchNeedsTheKeys is the control: without the keys what was sold is refused.
func TestLatchNeedsTheKeys(t *testing.T) {
	t.Parallel()
	l := newLatches(time.Second)
	now := time.Now()
	latchedAt(l, now, 7, "of somebody else")
	if !l.refuses("a", "sold", now) {
		t.Error("an order whose key was not read is passed on: the keys are not what lets it pass")
	}
}

// TestLatchKnowsWhatCameIn has units come in at every moment between the proof and the latch.
func TestLatchKnowsWhatCameIn(t *testing.T) {
	t.Parallel()
	keys := engine.Keys{Epoch: 7, Keys: []string{"sold"}}
	for _, moment := range []string{"never", "before the proof is told", "while the keys are read", "once it is set", "where others did it"} {
		l := newLatches(time.Second)
		now := time.Now()
		l.make("a")
		news := l.news("a")
		if moment == "before the proof is told" {
			l.drop("a")
		}
		one := l.prove("a", 7, news, now)
		if moment == "while the keys are read" {
			l.drop("a")
		}
		got := keys
		if moment == "where others did it" {
			got.Left, got.Epoch = 1, 8
		}
		if one != nil {
			l.loaded(one, got, news, now, nil)
		}
		if moment == "once it is set" {
			l.drop("a")
		}
		if refused := l.refuses("a", "new", now); refused != (moment == "never") {
			t.Errorf("units come in %s: refused %v", moment, refused)
		}
	}
}

func TestLatchIsProvedAnew(t *testing.T) {
	t.Parallel()
	l := newLatches(time.Second)
	now := time.Now()
	latchedAt(l, now, 7, "first")
	l.drop("a")
	if l.prove("a", 8, l.news("a"), now.Add(time.Millisecond)) != nil {
		t.Error("the keys are read again at once")
	}
	later := now.Add(latchPause)
	if !latchedAt(l, later, 8, "first", "second") {
		t.Fatal("the keys are not asked for again")
	}
	if l.refuses("a", "second", later) || !l.refuses("a", "third", later) {
		t.Error("it does not go by the new keys")
	}
	if l.prove("a", 9, l.news("a"), later.Add(latchPause)) == nil {
		t.Error("another epoch, and the old keys are good enough")
	}
	if l.prove("a", 9, l.news("a"), later.Add(latchPause)) != nil {
		t.Error("the keys are read twice at once")
	}
}

func TestLatchIsNotSet(t *testing.T) {
	t.Parallel()
	many := make([]string, maxLatchKeys+1)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	for name, c := range map[string]struct {
		keys engine.Keys
		err  error
	}{
		"units are left":       {keys: engine.Keys{Left: 1, Keys: []string{"sold"}}},
		"there are no keys":    {},
		"there are too many":   {keys: engine.Keys{Keys: many}},
		"they can't be loaded": {keys: engine.Keys{Keys: []string{"sold"}}, err: errors.New("no")},
	} {
		l := newLatches(time.Second)
		now := time.Now()
		l.loaded(l.prove("a", 7, 0, now), c.keys, 0, now, c.err)
		if l.refuses("a", "new", now) {
			t.Errorf("%s, and it refuses", name)
		}
	}
}

// TestLatchForgetsSKUs has so many that it begins anew, while the keys of one are read: what comes of them is of no use to anybody.
func TestLatchForgetsSKUs(t *testing.T) {
	t.Parallel()
	l := newLatches(time.Second)
	now := time.Now()
	one := l.prove("a", 7, 0, now)
	for i := range maxLatches {
		l.make(fmt.Sprint(i))
	}
	if l.of("a") != nil {
		t.Fatal("it was not forgotten")
	}
	l.drop("a") // units come in that the next latch of the SKU knows nothing of
	l.make("a")
	l.loaded(one, engine.Keys{Epoch: 7, Keys: []string{"sold"}}, 0, now, nil)
	if l.refuses("a", "new", now) {
		t.Error("what was read for the SKU's old latch has set its new one")
	}
	if !latchedAt(l, now, 8, "sold") || !l.refuses("a", "new", now) {
		t.Error("it can't be proved again")
	}
}

// TestLatchIsDroppedWhileItIsAsked is what an order sees that has read for how long the latch answers, just before units came in: the
// keys are gone, and nothing is known of it.
func TestLatchIsDroppedWhileItIsAsked(t *testing.T) {
	t.Parallel()
	l := newLatches(time.Minute)
	now := time.Now()
	latchedAt(l, now, 7, "sold")
	l.drop("a")
	l.lastsFrom(l.of("a"), now)
	if l.refuses("a", "sold", now) {
		t.Error("an order that is recorded is refused")
	}
}
