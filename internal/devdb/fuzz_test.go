package devdb_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/devdb"
)

// FuzzDSN: a connection string is read or refused, and the error never has the password.
func FuzzDSN(f *testing.F) {
	const secret = "s3cr3t-s3cr3t"
	for _, rest := range []string{"@127.0.0.1:5432/app", "@tcp(127.0.0.1:3306)/app", "", "@", "%zz@h/d", "@unix(/tmp/x)/d?parseTime=maybe", "@h:99999/d", "\x00@h/d"} {
		f.Add("postgres://user:", rest)
		f.Add("user:", rest)
		f.Add("mysql://user:", rest)
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		if strings.Contains(before, "=") { // settings may name files, and those are read
			return
		}
		for _, text := range []string{before + secret + after, after} {
			_, postgres := devdb.ParsePostgres(text)
			_, mysql := devdb.ParseMySQL(text)
			for _, err := range []error{postgres, mysql} {
				var refused *devdb.DSNError
				if err != nil && (!errors.As(err, &refused) || strings.Contains(err.Error(), secret)) {
					t.Errorf("%q: %v", text, err)
				}
			}
		}
	})
}
