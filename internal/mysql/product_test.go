package mysql

import (
	"errors"
	"strings"
	"testing"

	"github.com/dblock-go/dblock"
)

// The products that tests don't run on, by the texts that they give.
func TestProductOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		version, comment string
		want             Product
	}{
		{"8.0.36-0ubuntu0.22.04.1", "(Ubuntu)", ProductMySQL},
		{"9.7.4", "MySQL Community Server - GPL", ProductMySQL},
		{"10.11.19-MariaDB-0+deb12u1", "Debian 12", ProductMariaDB},
		{"5.5.5-10.6.16-MariaDB-log", "Source distribution", ProductMariaDB},
		{"8.0.11-TiDB-v8.5.0", "TiDB Server (Apache License 2.0) Community Edition, MySQL 8.0 compatible", ProductTiDB},
		{"8.0.11-TiDB-v8.4.0-this-is-a-placeholder", "", ProductTiDB},
		{"8.4.6-Vitess", "Version: 24.0.2 (Git revision abc branch 'HEAD')", ProductVitess},
	} {
		if got := productOf(c.version, c.comment); got != c.want {
			t.Errorf("%q, %q: %s, want %s", c.version, c.comment, got, c.want)
		}
	}
}

// TestSessionLocksByWhatWasRead: what a cluster's node, a replica and a proxy have in their
// variables.
func TestSessionLocksByWhatWasRead(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		s    Server
		want string // in the refusal; "" if there is none
	}{
		"alone":                {Server{Settings: map[string]string{"wsrep_on": "OFF", "read_only": "OFF"}}, ""},
		"a node":               {Server{Settings: map[string]string{"wsrep_on": "ON", "wsrep_provider": "/usr/lib/galera/libgalera_smm.so"}}, "Galera"},
		"wsrep without nodes":  {Server{Settings: map[string]string{"wsrep_on": "ON", "wsrep_provider": "none"}}, ""},
		"a member":             {Server{Group: true}, "replication group"},
		"a replica":            {Server{Settings: map[string]string{"read_only": "ON"}}, "read-only"},
		"no locks, MariaDB 12": {Server{Settings: map[string]string{"read_only": "NO_LOCK"}}, "read-only"},
		"a strict replica":     {Server{Settings: map[string]string{"super_read_only": "ON"}}, "read-only"},
		"read-only storage":    {Server{Settings: map[string]string{"innodb_read_only": "ON"}}, "read-only"},
		"the same session":     {Server{ConnID: 7, Settings: map[string]string{"pseudo_thread_id": "7"}}, ""},
		"another session":      {Server{ConnID: 7, Settings: map[string]string{"pseudo_thread_id": "8"}}, "proxy"},
		"a proxy":              {Server{Proxied: true}, "proxy"},
		"TiDB":                 {Server{Product: ProductTiDB}, "TiDB"},
		"Vitess":               {Server{Product: ProductVitess}, "Vitess"},
	} {
		c.s.settle()
		err := c.s.SessionLocks()
		if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, dblock.ErrUnsupported) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
