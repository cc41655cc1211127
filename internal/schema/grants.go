package schema

import (
	"fmt"
	"slices"
	"strings"
)

// PostgresServiceGrants are the statements that let a role run a service on dblock's tables in the
// named schema, and nothing more. docs/grants/ has them; tests run as a role that has no
// others.
func PostgresServiceGrants(schemaName, role string) []string {
	to := " TO " + QuotePostgres(role)
	in := QuotePostgres(schemaName)
	grants := []string{"GRANT USAGE ON SCHEMA " + in + to}
	for _, table := range Tables() {
		grants = append(grants, "GRANT "+strings.Join(Rights(Postgres, table), ", ")+" ON "+in+"."+table+to)
	}
	return append(grants, "GRANT SELECT ON "+in+"."+VersionTable+to)
}

// Rights are what a service needs on one of dblock's tables. To lock rows that it deletes, Postgres
// asks for UPDATE.
func Rights(engine, table string) []string {
	switch {
	case table == VersionTable:
		return []string{"SELECT"}
	case table == "dblock_adjustment": // the ledger that Audit trusts
		return []string{"SELECT", "INSERT"}
	case table == "dblock_queue_blocked",
		engine == MySQL && slices.Contains([]string{"dblock_queue_ready", "dblock_queue_scheduled", "dblock_queue_dead"}, table):
		return []string{"SELECT", "INSERT", "DELETE"}
	case passing(table):
		return []string{"SELECT", "INSERT", "UPDATE", "DELETE"}
	}
	return []string{"SELECT", "INSERT", "UPDATE"}
}

// OperatorRights are what an operator needs on one of dblock's tables for the commands locks,
// unlock, permits and queue, and for Audit and Lookup of package inventory.
func OperatorRights(engine, table string) []string {
	if other, is := mySQLOperatorRights[table]; is && engine == MySQL {
		return strings.Fields(other)
	}
	return strings.Fields(operatorRights[table])
}

// mySQLOperatorRights are those that differ on MySQL and MariaDB.
var mySQLOperatorRights = map[string]string{
	"dblock_reader":       "SELECT DELETE",
	"dblock_queue_job":    "SELECT INSERT DELETE",
	"dblock_queue_claim":  "SELECT INSERT DELETE",
	"dblock_queue_cancel": "SELECT INSERT UPDATE",
	"dblock_queue_unique": "SELECT INSERT DELETE",
	"dblock_queue_dead":   "SELECT INSERT DELETE",
}

var operatorRights = map[string]string{
	VersionTable:             "SELECT",
	"dblock_stock":           "SELECT",
	"dblock_reservation":     "SELECT",
	"dblock_adjustment":      "SELECT",
	"dblock_member":          "SELECT",
	"dblock_lease":           "SELECT UPDATE",
	"dblock_lease_waiter":    "SELECT",
	"dblock_ticket":          "SELECT",
	"dblock_reader":          "SELECT UPDATE DELETE",
	"dblock_semaphore":       "SELECT INSERT UPDATE",
	"dblock_permit":          "SELECT INSERT UPDATE",
	"dblock_session_key":     "SELECT",
	"dblock_queue":           "SELECT INSERT UPDATE DELETE",
	"dblock_queue_job":       "SELECT INSERT UPDATE DELETE",
	"dblock_queue_ready":     "SELECT INSERT DELETE",
	"dblock_queue_scheduled": "SELECT INSERT DELETE",
	"dblock_queue_claim":     "SELECT INSERT UPDATE DELETE",
	"dblock_queue_cancel":    "SELECT INSERT",
	"dblock_queue_key":       "SELECT UPDATE DELETE",
	"dblock_queue_blocked":   "SELECT DELETE",
	"dblock_queue_unique":    "SELECT INSERT UPDATE DELETE",
	"dblock_queue_dead":      "SELECT INSERT UPDATE DELETE",
	"dblock_queue_history":   "SELECT INSERT UPDATE",
}

// PostgresOperatorGrants are the statements that let a role run these commands, and nothing more.
func PostgresOperatorGrants(schemaName, role string) []string {
	in, to := QuotePostgres(schemaName), " TO "+QuotePostgres(role)
	return append([]string{"GRANT USAGE ON SCHEMA " + in + to}, operatorGrants(Postgres, in, to)...)
}

// MySQLOperatorGrants are the same for an account.
func MySQLOperatorGrants(database, account string) []string {
	return operatorGrants(MySQL, QuoteMySQL(database), " TO "+QuoteMySQLAccount(account))
}

func operatorGrants(engine, in, to string) (grants []string) {
	for _, table := range append(Tables(), VersionTable) {
		if rights := OperatorRights(engine, table); len(rights) > 0 {
			grants = append(grants, "GRANT "+strings.Join(rights, ", ")+" ON "+in+"."+table+to)
		}
	}
	return grants
}

// PostgresMigrationGrants are the statements that let a role create dblock's tables in a schema
// that exists. It owns what it creates, so it needs nothing to change or drop it.
func PostgresMigrationGrants(schemaName, role string) []string {
	return []string{"GRANT USAGE, CREATE ON SCHEMA " + QuotePostgres(schemaName) + " TO " + QuotePostgres(role)}
}

// MySQLServiceGrants are the statements that let an account run a service on dblock's tables in the
// named database, and nothing more. An account is user@host; without a host it is any host.
func MySQLServiceGrants(database, account string) []string {
	to := " TO " + QuoteMySQLAccount(account)
	in := QuoteMySQL(database)
	var grants []string
	for _, table := range Tables() {
		grants = append(grants, "GRANT "+strings.Join(Rights(MySQL, table), ", ")+" ON "+in+"."+table+to)
	}
	return append(grants, "GRANT SELECT ON "+in+"."+VersionTable+to)
}

// MySQLMigrationGrants are the statements that let an account create, change and drop dblock's
// tables in a database that exists. MySQL has no owners, so they hold for the whole database.
func MySQLMigrationGrants(database, account string) []string {
	// In this place, and only here, _ and % in a name are wildcards: a grant on my_app would also
	// be one on myXapp.
	pattern := strings.NewReplacer(`_`, `\_`, `%`, `\%`).Replace(QuoteMySQL(database))
	return []string{fmt.Sprintf("GRANT CREATE, ALTER, DROP, SELECT, INSERT, UPDATE, DELETE ON %s.* TO %s",
		pattern, QuoteMySQLAccount(account))}
}

// QuoteMySQLAccount quotes user@host; without a host it is any host.
func QuoteMySQLAccount(account string) string {
	user, host := account, "%"
	if at := strings.LastIndexByte(account, '@'); at >= 0 {
		user, host = account[:at], account[at+1:]
	}
	quote := func(s string) string {
		return "'" + strings.NewReplacer(`\`, `\\`, "'", "''").Replace(s) + "'"
	}
	return quote(user) + "@" + quote(host)
}

// PostgresCreateSchemaGrants are the statements that let a role create the schema itself, which Up
// does when it is missing.
func PostgresCreateSchemaGrants(database, role string) []string {
	return []string{"GRANT CREATE ON DATABASE " + QuotePostgres(database) + " TO " + QuotePostgres(role)}
}
