package programs

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
)

// checkPermits checks the holds of a semaphore. The hold that was granted last was granted under
// its own limit, with all others beside it.
func checkPermits(v *verdict, name string, holds []hold, sizes []resizing) {
	for _, h := range holds {
		if h.Mode != dblock.ModePermit {
			continue
		}
		if !isLimit(name, h, sizes) {
			v.add("permits", "%q did not have %d permits:\n%s", name, h.Limit, around(holds, h.Granted))
			return
		}
		sum, limit := 0, 0
		for _, o := range holds {
			if o.Granted <= h.Granted && h.Granted < o.trusted() {
				sum, limit = sum+o.Permits, max(limit, o.Limit)
			}
		}
		if sum > limit {
			v.add("permits", "%d of %d permits of %q are held:\n%s", sum, limit, name, around(holds, h.Granted))
			return
		}
	}
}

// isLimit reports whether a semaphore may have had the limit of a hold while it was acquired. The
// first acquisition makes the semaphore, with its own limit.
func isLimit(name string, h hold, sizes []resizing) bool {
	before := func(o resizing, by int64) bool { return o.Name == name && !o.Unknown && o.Returned <= by }
	if !slices.ContainsFunc(sizes, func(o resizing) bool { return before(o, h.Called) }) {
		return true
	}
	return slices.ContainsFunc(sizes, func(o resizing) bool {
		later := func(other resizing) bool { return before(other, h.Called) && !o.Unknown && other.Called >= o.Returned }
		return o.Name == name && o.Limit == h.Limit && o.Called <= h.Granted && !slices.ContainsFunc(sizes, later)
	})
}

// ticketSample has the waiters for a key: handles in the order of their tickets.
type ticketSample struct {
	at   int64 // the table was read before
	wait map[string][]string
}

// isFair reports whether all callers of leases are fair, and nothing keeps their tickets locked.
func (p lockProgram) isFair() bool {
	some := false
	for _, process := range p.Processes {
		for _, caller := range process.Callers {
			for _, s := range caller.Steps {
				if s.space() == lease && s.Lock != fair {
					return false
				}
				some = some || s.Lock == fair
			}
		}
	}
	return some && len(p.Faults) == 0
}

// watchTickets reads the waiters for the fair locks of a run, until ctx ends.
func (p *place) watchTickets(ctx context.Context, run string) (all []ticketSample) {
	query := "SELECT lease_key, handle FROM dblock_ticket WHERE lease_key LIKE '%s-%%' AND NOT served ORDER BY ticket"
	if p.kind == devdb.Postgres {
		query = strings.Replace(query, "AND NOT served", "", 1)
	}
	for {
		select {
		case <-ctx.Done():
			return all
		case <-time.After(3 * time.Millisecond):
		}
		s := ticketSample{wait: map[string][]string{}}
		err := p.each(ctx, fmt.Sprintf(query, run), func(rows rowScanner) error {
			var key string
			var handle []byte
			err := rows.Scan(&key, &handle)
			text := strings.ReplaceAll(string(handle), "-", "")
			if p.kind != devdb.Postgres {
				text = hex.EncodeToString(handle)
			}
			s.wait[key] = append(s.wait[key], text)
			return err
		})
		if s.at = now(); err == nil {
			all = append(all, s)
		}
	}
}

// checkFair checks the order of grants, which their tokens show. It has to be the order of the
// waiters' tickets, and all of these come before later callers.
func checkFair(v *verdict, holds []hold, samples []ticketSample) {
	byHandle, byKey := map[string]hold{}, map[string][]hold{}
	for _, h := range holds {
		if h.Handle != "" {
			byHandle[h.Handle] = h
			byKey[h.Names[0]] = append(byKey[h.Names[0]], h)
		}
	}
	for _, s := range samples {
		for key, handles := range s.wait {
			var last hold
			for _, handle := range handles {
				h, granted := byHandle[handle]
				if !granted {
					continue // its caller gave up
				}
				if last.Handle != "" && h.Tokens[0] < last.Tokens[0] {
					v.add("order", "a later ticket for %q was served first:\n%s", key, show([]hold{last, h}, every))
					return
				}
				last = h
			}
			if last.Handle == "" {
				continue
			}
			for _, h := range byKey[key] {
				if h.Called > s.at && h.Tokens[0] < last.Tokens[0] {
					v.add("order", "a later caller of %q was served first:\n%s", key, show([]hold{last, h}, every))
					return
				}
			}
		}
	}
}

func every(hold) bool { return true }
