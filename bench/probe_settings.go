package bench

import (
	"slices"
	"strings"

	"github.com/dblock-go/dblock/internal/devdb"
)

// setting is one of a server's settings, as the server itself writes it.
type setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// settings are what a result depends on. Those of a version that does without one lack it.
type settings struct {
	Kind devdb.Kind
	List []setting // those of durability come first

	mac bool // the server runs on macOS
}

func (s settings) get(name string) string {
	for _, one := range s.List {
		if one.Name == name {
			return one.Value
		}
	}
	return ""
}

// durable reports whether an acknowledged commit survives a power cut on this server alone, and if
// not, why. A disk or a hypervisor that lies about flushes is beyond it.
func (s settings) durable() (ok bool, why string) {
	if s.Kind == devdb.Postgres {
		why = s.postgresGap()
	} else {
		why = s.mysqlGap()
	}
	return why == "", why
}

func (s settings) postgresGap() string {
	switch {
	case s.get("fsync") == "off":
		return "fsync is off: nothing waits for the disk"
	case s.get("synchronous_commit") == "off":
		return "synchronous_commit is off: commits are acknowledged before they are on the disk"
	case s.get("full_page_writes") == "off":
		return "full_page_writes is off: a page that a power cut tears can't be mended"
	case s.mac && s.get("wal_sync_method") != "fsync_writethrough":
		return "wal_sync_method is " + s.get("wal_sync_method") + ": on macOS it leaves commits in the drive's cache"
	}
	return ""
}

func (s settings) mysqlGap() string {
	flush := s.get("innodb_flush_log_at_trx_commit")
	// MariaDB's 3 is 1 with one more flush.
	flushed := flush == "1" || flush == "3" && s.Kind == devdb.MariaDB
	method, doublewrite := s.get("innodb_flush_method"), s.get("innodb_doublewrite")
	unsafe := func(value string, values ...string) bool { return slices.Contains(values, strings.ToLower(value)) }
	switch {
	case !flushed:
		return "innodb_flush_log_at_trx_commit is " + flush + ": commits are acknowledged before they are on the disk"
	case unsafe(method, "nosync", "littlesync"):
		return "innodb_flush_method is " + method + ": it leaves out flushes"
	case s.get("log_bin") == "ON" && s.get("sync_binlog") != "1":
		return "sync_binlog is " + s.get("sync_binlog") + ": a commit that the binary log lacks after a power cut is taken back"
	case unsafe(doublewrite, "off", "detect_only"):
		return "innodb_doublewrite is " + doublewrite + ": a page that a power cut tears can't be mended"
	}
	return ""
}
