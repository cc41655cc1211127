package doctor

import "time"

// The engines.
const (
	enginePostgres = "postgres"
	engineMySQL    = "mysql"
)

// Facts are what was read from a server, before any check.
type Facts struct {
	Engine, Product, Version string
	Known                    bool  // the product is one whose settings mean what they say
	TooOld                   error // what says so of the version, or nil
	Target, Database, User   string

	Cluster        string // what several nodes are behind it, for example "a Galera cluster"; "" if none shows
	Pooled         bool
	NoTransactions bool  // a pooler refuses them
	Standby        bool  // a standby or a replica: it accepts no writes
	ReadOnly       bool  // transactions of the session are read-only by default
	SessionLocks   error // why locks of a session don't exclude there, or nil

	ClientEncoding string // Postgres: that of the connections

	Prepares    bool          // the DSN has the driver prepare statements by name
	ReadTimeout time.Duration // of the DSN

	Schema   string // where the tables are looked for; "" if the connection's own setting names no place
	Have     int64  // the tables' version
	Unread   error  // why the version is not known, or nil
	Tables   []Table
	Differ   []string  // what the tables lack of their version, or have otherwise
	NoUsage  bool      // Postgres: the role can't enter the schema
	Creators []Creator // Postgres: other roles that may create objects on the search_path

	SearchPath       string // Postgres: as sessions begin with it
	Stranger         string // Postgres: a table whose owner is not to be trusted, as pgdb.ForeignOwner says it
	Ahead            time.Duration
	Within           time.Duration // what Ahead may be off by
	ClockStandsStill bool          // MySQL: the clock of the session's statements stands still
	Isolation        string
	Settings         map[string]string // by the server's name, as it shows them

	Connections, MaxConnections int // open, and how many a service may have
	Locks, LockCapacity         int // in the server's lock table; capacity 0 if there is no limit
	Replicas                    int // that follow now, as far as this user sees
}

// Creator is a role that may create objects in a schema.
type Creator struct{ Schema, Role string }

// Table is one of dblock's tables.
type Table struct {
	Name    string
	Missing bool
	Storage string   // Postgres: permanent, unlogged or temporary; MySQL: the engine
	Lacks   []string // what a service needs there and the user may not
}

func (f Facts) postgres() bool { return f.Engine == enginePostgres }
