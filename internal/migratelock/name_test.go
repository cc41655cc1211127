package migratelock

import (
	"regexp"
	"testing"
)

// Programs of different versions exclude each other only while these stay as they are.
func TestNamesNeverChange(t *testing.T) {
	t.Parallel()
	if got, want := (&Postgres{Schema: "public"}).key(), int64(9168573464776515340); got != want {
		t.Errorf("Postgres: got %d, want %d", got, want)
	}
	if got, want := (&Postgres{Schema: Service("shop")}).key(), int64(4725497141815723643); got != want {
		t.Errorf("Postgres, of a service: got %d, want %d", got, want)
	}
	if got, want := (&MySQL{Database: Service("shop")}).name(), "78ff7934cf538cbdfc70d0d95ae0ce80ac3c132bb5ac4f1304990d8024a259c3"; got != want {
		t.Errorf("MySQL, of a service: got %s, want %s", got, want)
	}
	if got, want := (&MySQL{Database: "App"}).name(), "a29612d7181c90789c3d6158daef13d9a86762745eb3c487a1a5b227fda37843"; got != want {
		t.Errorf("MySQL: got %s, want %s", got, want)
	}
}

// A migration of a service's own may apply dblock's: it must not wait for itself.
func TestServicesAreNoSchemas(t *testing.T) {
	t.Parallel()
	if (&Postgres{Schema: Service("app")}).key() == (&Postgres{Schema: "app"}).key() {
		t.Error("Postgres: a service and a schema share a name")
	}
	if (&MySQL{Database: Service("app")}).name() == (&MySQL{Database: "app"}).name() {
		t.Error("MySQL: a service and a database share a name")
	}
}

func TestMySQLNameFits(t *testing.T) {
	t.Parallel()
	name := (&MySQL{Database: "a database with a name that is rather long, as names of databases go"}).name()
	if !regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(name) {
		t.Errorf("%q is not 64 characters of lower-case hex", name)
	}
	if name == (&MySQL{Database: "another"}).name() {
		t.Error("two databases share a name")
	}
	if (&MySQL{Database: "APP"}).name() != (&MySQL{Database: "app"}).name() {
		t.Error("servers that fold case would see two names for one database")
	}
}
