package devdb

import (
	"fmt"
	"os"
	"path/filepath"
)

const (
	envPostgresURL = "DBLOCK_POSTGRES_URL"
	envPostgresBin = "DBLOCK_POSTGRES_BIN"
	envMySQLDSN    = "DBLOCK_MYSQL_DSN"
	envMySQLD      = "DBLOCK_MYSQLD"
	envServersDir  = "DBLOCK_SERVERS_DIR"
	envTemplates   = "DBLOCK_TEMPLATES"
)

func postgresURL() string { return os.Getenv(envPostgresURL) }
func mysqlDSN() string    { return os.Getenv(envMySQLDSN) }

// serversDir is where scripts/fetch-servers.sh puts servers; both must agree on the default. Every
// user may make folders there, so a folder of another user is passed over.
func serversDir() string {
	if d := os.Getenv(envServersDir); d != "" {
		return d
	}
	d := filepath.Join("/var/tmp", fmt.Sprintf("dblock-servers-%d", os.Getuid()))
	if st, err := os.Lstat(d); err != nil || !st.IsDir() || !ownedByUs(st) {
		return os.DevNull // nothing lies below it
	}
	return d
}
