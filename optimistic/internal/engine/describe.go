package engine

// Describe makes a new *optimistic.Table[V, DB] the description of a table, which statements of an
// Engine[DB] write. version is an optimistic.Version[V]. Package optimistic sets it at
// initialization, so that NewTable of a driver can make a Table, and no one else: this package can't
// name types of package optimistic, and a variable has no type parameters.
var Describe func(table, e any, name, key string, version any) error
