package bench

import (
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
)

func TestSlapIsMeasured(t *testing.T) {
	t.Parallel()
	for _, kind := range testdb.Engines() {
		if kind == devdb.Postgres {
			continue
		}
		if _, err := findProgram(nil, []string{"mariadb-slap", "mysqlslap"}); err != nil {
			t.Log("mariadb-slap and mysqlslap: ", err)
			return
		}
		env, w := openScript(t, kind, "slap", "a script.sql", "UPDATE t SET n = n + 1;\nSELECT n FROM t;\n",
			"CREATE TABLE t (n bigint); INSERT INTO t VALUES (0);", 3)
		s, err := runScript(t.Context(), t, w, 300*time.Millisecond)
		require.NoError(t, err)
		assert.GreaterOrEqual(t, ask(t, env, "SELECT n FROM t"), s.OK, "the runs that were too short are in it, too")
		assert.GreaterOrEqual(t, s.Elapsed, 200*time.Millisecond)
		assert.Positive(t, s.Latency.Mean)

		_, w = openScript(t, kind, "slap", "bad.sql", "SELECT * FROM missing", "", 2)
		_, err = runScript(t.Context(), t, w, time.Millisecond)
		assert.ErrorContains(t, err, "missing")
		for want, f := range map[string]scriptFlags{
			"holds no statement": writeScript(t, "empty.sql", " ;\n", ""),
			"have no variables":  {file: "a.sql", defined: map[string]string{"a": "1"}},
			"setup.sql: ":        writeScript(t, "a.sql", "SELECT 1", "SELEC 1"),
		} {
			_, err := openSlap(t.Context(), &Env{Kind: kind, DSN: testdb.DSN(t, kind), Dir: t.TempDir()}, f)
			assert.ErrorContains(t, err, want)
		}
	}
}

func TestOptionsOfClients(t *testing.T) {
	t.Parallel()
	for dsn, want := range map[string]string{
		`u:p"w\d@tcp([::1]:3307)/x`: "[client]\nuser=\"u\"\npassword=\"p\\\"w\\\\d\"\nhost=::1\nport=3307\n",
		"u@unix(/tmp/s)/x":          "[client]\nuser=\"u\"\npassword=\"\"\nsocket=/tmp/s\n",
	} {
		config, err := mysql.ParseDSN(dsn)
		require.NoError(t, err)
		assert.Equal(t, want, string(clientOptions(config)))
	}
}
