package doctor

import (
	"fmt"
	"strconv"
	"time"
)

// durability is about what a crash takes back. A lock that was granted and is forgotten is granted again, with the same
// token.
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

func timeouts(f Facts) []Finding {
	if f.postgres() {
		return timeoutsPostgres(f)
	}
	return timeoutsMySQL(f)
}

// Statements of leases wait 10 ms for a row and a moment for the disk. One that is cut off then leaves behind an outcome
// that is unknown.
const shortStatement = time.Second

// Work under a lock may well pause for less.
const shortPause = 30 * time.Second

func timeoutsPostgres(f Facts) []Finding {
	var list []Finding
	say := func(s Status, setting string, d time.Duration, advice string) {
		list = append(list, finding(s, fmt.Sprintf("%s = %v", setting, d), advice))
	}
	if d := f.millis("statement_timeout"); d > 0 && d < shortStatement {
		say(Warning, "statement_timeout", d, "statements that wait for a disk or a lock are cut off, with an outcome that is unknown: allow a second at least")
	}
	if d := f.millis("transaction_timeout"); d > 0 {
		say(Note, "transaction_timeout", d, "guarded transactions that take longer are ended")
	}
	if d := f.millis("lock_timeout"); d > 0 {
		say(Note, "lock_timeout", d, "who waits longer for a row or an advisory lock gets an error instead of it")
	}
	if d := f.millis("idle_session_timeout"); d > 0 {
		say(Warning, "idle_session_timeout", d, "a session that holds an advisory lock and says nothing is ended, and its lock given to others: "+
			"use leases, or set it to 0 for this user")
	}
	switch d := f.millis("idle_in_transaction_session_timeout"); {
	case d > 0 && d < shortPause:
		say(Note, "idle_in_transaction_session_timeout", d, "a transaction that pauses for longer is ended, with the locks that it holds")
	case d == 0:
		list = append(list, finding(Note, "idle_in_transaction_session_timeout is off",
			"a client that hangs inside a transaction keeps its row locks for as long as it hangs: set it, for example to 1min"))
	}
	if _, read := f.Settings["client_connection_check_interval"]; read && f.millis("client_connection_check_interval") == 0 {
		list = append(list, finding(Note, "client_connection_check_interval is off",
			"a statement whose client has gone can wait at the server until a locked table is free: set it, for example to 1s, except on Windows"))
	}
	return orFine(list, "none is in the way")
}

// What a lease watches by, where nobody is notified, is a statement of up to a second.
const shortRead = 2 * time.Second

func timeoutsMySQL(f Facts) []Finding {
	var list []Finding
	say := func(s Status, setting string, d time.Duration, advice string) {
		list = append(list, finding(s, fmt.Sprintf("%s = %v", setting, d), advice))
	}
	const cutOff = "the statement that watches what is waited for takes up to a second: with less than 2 s waiters are served later, by asking"
	if d := f.ReadTimeout; d > 0 && d < shortRead {
		say(Warning, "readTimeout of the DSN", d, cutOff)
	}
	if d := f.millis("max_execution_time"); d > 0 && d < shortRead {
		say(Warning, "max_execution_time", d, cutOff)
	}
	if d := f.seconds("max_statement_time"); d > 0 && d < shortRead {
		say(Warning, "max_statement_time", d, cutOff+"; writes are cut off, too, with an outcome that is unknown")
	}
	if d := f.seconds("idle_transaction_timeout"); d > 0 {
		say(Note, "idle_transaction_timeout", d, "a transaction that pauses for longer is ended, with the locks that it holds")
	}
	switch d := f.seconds("wait_timeout"); {
	case d > 0 && d < time.Minute:
		say(Warning, "wait_timeout", d, "a session that holds a named lock and says nothing is ended, and its lock given to others: "+
			"use leases, or allow a minute at least")
	case d > time.Hour:
		say(Note, "wait_timeout", d, "a client that vanished without a word keeps its named locks for so long: set less where you use those")
	}
	if d := f.seconds("innodb_lock_wait_timeout"); d > time.Minute {
		say(Note, "innodb_lock_wait_timeout", d, "a transaction of yours waits so long for a row")
	}
	return orFine(list, "none is in the way")
}

func (f Facts) millis(setting string) time.Duration {
	n, err := strconv.ParseInt(f.Settings[setting], 10, 64)
	if err != nil {
		return 0
	}
	return time.Duration(n) * time.Millisecond
}

func (f Facts) seconds(setting string) time.Duration {
	d, err := time.ParseDuration(f.Settings[setting] + "s")
	if err != nil {
		return 0
	}
	return d
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
