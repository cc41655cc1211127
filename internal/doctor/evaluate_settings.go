package doctor

import (
	"fmt"
	"strconv"
	"time"
)

// durability is about what a crash takes back. A lock that was granted and is forgotten is granted
// again, with the same token.
func durability(f Facts) []Finding {
	var list []Finding
	say := func(s Status, setting, why, want string) {
		list = append(list, finding(s, setting+" = "+f.Settings[setting]+": "+why, "set "+setting+" = "+want))
	}
	const forgets = "a crash can take back locks, tokens and sales that were confirmed"
	if f.postgres() {
		if f.Settings["fsync"] == "off" {
			say(Problem, "fsync", forgets+", and ruin the whole database", "on")
		}
		if f.Settings["synchronous_commit"] == "off" {
			say(Problem, "synchronous_commit", forgets, "on")
		}
		if f.Settings["full_page_writes"] == "off" {
			say(Warning, "full_page_writes", "a loss of power can ruin pages, unless the disk writes them whole", "on")
		}
		if f.Replicas > 0 && f.Settings["synchronous_standby_names"] == "" {
			list = append(list, finding(Note, fmt.Sprintf("%d standbys follow, and none is waited for", f.Replicas),
				"after a failover the last tokens can be given out again: name one in synchronous_standby_names where that matters"))
		}
		return orFine(list, "a commit survives a crash of the server")
	}
	if v := f.Settings["innodb_flush_log_at_trx_commit"]; v != "1" && v != "3" { // MariaDB flushes twice with 3
		say(Problem, "innodb_flush_log_at_trx_commit", forgets, "1")
	}
	if on(f.Settings["log_bin"]) && f.Settings["sync_binlog"] != "1" {
		say(Problem, "sync_binlog", forgets+": after one the binary log says what was committed", "1")
	}
	if v, there := f.Settings["innodb_doublewrite"]; there && !on(v) {
		say(Warning, "innodb_doublewrite", "a loss of power can ruin pages, unless the disk writes them whole", "ON")
	}
	return orFine(list, "a commit survives a crash of the server")
}

func on(value string) bool { return value != "" && value != "0" && value != "OFF" && value != "off" }

// bound is a setting that gets a finding if it is between two durations: more than one, and less
// than the other.
type bound struct {
	status      Status
	setting     string
	unit        time.Duration
	above, less time.Duration // less 0: no matter how much
	advice      string
}

const (
	// Statements of leases wait 10 ms for a row and a moment for the disk. One that is cut off then
	// leaves behind an outcome that is unknown.
	shortStatement = time.Second

	// Work under a lock may well pause for less.
	shortPause = 30 * time.Second

	// Without notifications a lease watches keys by a statement of up to a second.
	shortRead = 2 * time.Second
	cutShort  = "the statement that watches what is waited for takes up to a second: with less than 2 s waiters are served later, by asking"

	idleEnds    = "a transaction that pauses for longer is ended, with the locks that it holds"
	sessionEnds = " that says nothing is ended, and its lock given to others: use leases, or "
)

var postgresBounds = []bound{
	{Warning, "statement_timeout", time.Millisecond, 0, shortStatement,
		"statements that wait for a disk or a lock are cut off, with an outcome that is unknown: allow a second at least"},
	{Note, "transaction_timeout", time.Millisecond, 0, 0, "guarded transactions that take longer are ended"},
	{Note, "lock_timeout", time.Millisecond, 0, 0, "a statement that waits longer for a row or an advisory lock fails"},
	{Warning, "idle_session_timeout", time.Millisecond, 0, 0, "a session with an advisory lock" + sessionEnds + "set it to 0 for this user"},
	{Note, "idle_in_transaction_session_timeout", time.Millisecond, 0, shortPause, idleEnds},
}

var mysqlBounds = []bound{
	{Warning, "max_execution_time", time.Millisecond, 0, shortRead, cutShort},
	{Warning, "max_statement_time", time.Second, 0, shortRead, cutShort + "; writes are cut off, too, with an outcome that is unknown"},
	{Note, "idle_transaction_timeout", time.Second, 0, 0, idleEnds},
	{Warning, "wait_timeout", time.Second, 0, time.Minute, "a session with a named lock" + sessionEnds + "allow a minute at least"},
	{Note, "wait_timeout", time.Second, time.Hour, 0, "a client that vanished without a word keeps its named locks for so long: set less where you use those"},
	{Note, "innodb_lock_wait_timeout", time.Second, time.Minute, 0, "a transaction of yours waits so long for a row"},
}

func timeouts(f Facts) []Finding {
	var list []Finding
	if d := f.ReadTimeout; d > 0 && d < shortRead {
		list = append(list, finding(Warning, fmt.Sprintf("readTimeout of the DSN = %v", d), cutShort))
	}
	bounds := mysqlBounds
	if f.postgres() {
		bounds = postgresBounds
	}
	for _, b := range bounds {
		if d := f.duration(b.setting, b.unit); d > b.above && (b.less == 0 || d < b.less) {
			list = append(list, finding(b.status, fmt.Sprintf("%s = %v", b.setting, d), b.advice))
		}
	}
	if f.postgres() && f.duration("idle_in_transaction_session_timeout", time.Millisecond) == 0 {
		list = append(list, finding(Note, "idle_in_transaction_session_timeout is off",
			"a client that hangs inside a transaction keeps its row locks for as long as it hangs: set it, for example to 1min"))
	}
	if v, read := f.Settings["client_connection_check_interval"]; read && v == "0" {
		list = append(list, finding(Note, "client_connection_check_interval is off",
			"a statement whose client has gone can wait at the server until a locked table is free: set it, for example to 1s, except on Windows"))
	}
	return orFine(list, "none is in the way")
}

// duration is a setting that counts units, with decimals on MariaDB.
func (f Facts) duration(setting string, unit time.Duration) time.Duration {
	n, err := strconv.ParseFloat(f.Settings[setting], 64)
	if err != nil {
		return 0
	}
	return time.Duration(n * float64(unit))
}

// How full is much, and how full is too much, in percent.
const (
	connectionsMany, connectionsFull = 80, 95
	locksMany, locksFull             = 50, 90
)

func connections(f Facts) []Finding {
	if f.MaxConnections <= 0 {
		return nil
	}
	found := fmt.Sprintf("%d of %d are open", f.Connections, f.MaxConnections)
	const advice = "a process that can't connect can't renew its locks: give pools a bound, put a pooler before the server, or raise max_connections"
	return []Finding{level(f.Connections, f.MaxConnections, connectionsMany, connectionsFull, found, advice)}
}

func lockTable(f Facts) []Finding {
	if f.LockCapacity <= 0 {
		return nil
	}
	found := fmt.Sprintf("%d locks of about %d", f.Locks, f.LockCapacity)
	const advice = "when it is full all sessions get errors, and no new ones are let in: take fewer advisory locks at once, or raise max_locks_per_transaction"
	return []Finding{level(f.Locks, f.LockCapacity, locksMany, locksFull, found, advice)}
}

func level(used, of, many, full int, found, advice string) Finding {
	switch percent := used * 100 / of; {
	case percent >= full:
		return finding(Problem, found, advice)
	case percent >= many:
		return finding(Warning, found, advice)
	}
	return fine(found)
}
