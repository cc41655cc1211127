package lock

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/schema"
)

// operatorsOfLocksNeedTheirGrants does what locks, unlock and permits do.
func operatorsOfLocksNeedTheirGrants(t *testing.T, v *env) {
	as, name := suite.GrantedUser(t, v.e.Kind, v.dsn, v.db, schema.PostgresOperatorGrants, schema.MySQLOperatorGrants)
	operator, service := (&env{v.e, as, v.db}).process(t, LeaseOptions{}), v.process(t, LeaseOptions{})
	n := 0
	suite.EachGrantIsNeeded(t, v.e.Kind, v.db, name, func(table string) bool {
		return !strings.HasPrefix(table, "dblock_queue") && table != "dblock_session_key" && !suite.OfStock(table)
	}, func() error {
		n++
		one, many, some := fmt.Sprint("one", n), fmt.Sprint("many", n), fmt.Sprint("some", n)
		locks := []*dblock.Lock{suite.Acquire(t, service, one), suite.Acquire(t, service, many, dblock.WithShared()), suite.Acquire(t, service, some, dblock.WithPermits(1, 2))}
		_, held := operator.Held(t.Context())
		_, holder := operator.Holder(t.Context(), one)
		errs := []error{held, holder, operator.SetPermits(t.Context(), some, 3), operator.SetPermits(t.Context(), "new "+some, 3)}
		for _, lock := range locks {
			errs = append(errs, operator.ForceRelease(t.Context(), lock.Key(), lock.Fences()[0].Token))
			_ = lock.Release(t.Context()) // lost, unless the operator was refused
		}
		return errors.Join(errs...)
	})
}
