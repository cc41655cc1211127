package lock

import (
	"testing"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
)

// onAServerOfItsOwn is an env where nobody else is. Where the server is given it stays where it is, and
// server is nil.
func (v *env) onAServerOfItsOwn(t *testing.T) (own *env, server *devdb.Server) {
	t.Helper()
	server, dsn, db := suite.ServerOfItsOwn(t, v.e.Kind)
	if server == nil {
		return v, nil
	}
	return &env{e: v.e, dsn: dsn, db: db}, server
}
