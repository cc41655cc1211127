package schema_test

import (
	"errors"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/schema"
)

func TestPostgresServer(t *testing.T) {
	t.Parallel()
	for version, old := range map[string]bool{
		"15.18 (Debian 15.18-0+deb12u1)": false,
		"14.0":                           false,
		"14beta1":                        false,
		"18devel":                        false,
		"13.23":                          true,
		"9.6.24":                         true,
		"150018":                         false,
		"140000":                         false,
		"130023":                         true,
		"90624":                          true,
	} {
		err := schema.PostgresServer(version)
		if got := errors.Is(err, dblock.ErrServerTooOld); got != old || (err != nil) != old {
			t.Errorf("PostgresServer(%q) = %v, want too old: %v", version, err, old)
		}
	}
}

func TestMySQLServer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		version, name string
		old           bool
	}{
		{"9.7.4", "MySQL", false},
		{"8.0.16", "MySQL", false},
		{"8.0.36-0ubuntu0.22.04.1", "MySQL", false},
		{"8.4.2-log", "MySQL", false},
		{"8.0.15", "MySQL", true},
		{"5.7.44-log", "MySQL", true},
		{"10.6.0-MariaDB", "MariaDB", false},
		{"10.11.19-MariaDB-0+deb12u1", "MariaDB", false},
		{"5.5.5-10.11.19-MariaDB", "MariaDB", false},
		{"11.8.6-MariaDB-ubu2404", "MariaDB", false},
		{"10.5.29-MariaDB", "MariaDB", true},
		{"5.5.5-10.4.34-MariaDB-log", "MariaDB", true},
		{"5.5.68-MariaDB", "MariaDB", true},
	} {
		name, err := schema.MySQLServer(c.version)
		if name != c.name {
			t.Errorf("MySQLServer(%q) names it %q, want %q", c.version, name, c.name)
		}
		if got := errors.Is(err, dblock.ErrServerTooOld); got != c.old || (err != nil) != c.old {
			t.Errorf("MySQLServer(%q) = %v, want too old: %v", c.version, err, c.old)
		}
	}
}

func TestUnreadableVersionIsAnError(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"", "devel", "99999999999999999999.1"} {
		if err := schema.PostgresServer(version); err == nil || errors.Is(err, dblock.ErrServerTooOld) {
			t.Errorf("PostgresServer(%q) = %v", version, err)
		}
		if name, err := schema.MySQLServer(version); err == nil || name != "" {
			t.Errorf("MySQLServer(%q) = %q, %v", version, name, err)
		}
	}
}

func TestTooOldSaysWhatToDo(t *testing.T) {
	t.Parallel()
	err := schema.PostgresServer("13.4")
	const want = "dblock: PostgreSQL 13.4 is too old: 14 or later is needed"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
