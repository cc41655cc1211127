package mysql

import "database/sql"

// CarriedID returns how many rows a statement changed, and the number that the statement carries as
// its insert id, with LAST_INSERT_ID(number). All numbers of a kind are at least least, which is
// above 0.
//
// The number is 0 if the insert id is not the statement's own. A trigger on the statement's table
// hides the number when it inserts into a table with an AUTO_INCREMENT column. The caller then
// reads the number back.
func CarriedID(result sql.Result, least int64) (rows, number int64, err error) {
	if rows, err = result.RowsAffected(); err != nil || rows == 0 {
		return 0, 0, err
	}
	if number, err = result.LastInsertId(); err != nil || number < least {
		number = 0
	}
	return rows, number, err
}
