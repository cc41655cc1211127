package bench

import (
	"testing"

	"github.com/dblock-go/dblock/internal/testdb"
)

func TestMain(m *testing.M) { testdb.Main(m) }
