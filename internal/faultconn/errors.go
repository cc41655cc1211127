package faultconn

import (
	"context"
	"database/sql"
	"encoding/binary"
	"io"
	"net"
	"sync"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
)

// PostgresError is what pgx makes of an ErrorResponse with the given body, as the answer to a
// statement.
func PostgresError(body []byte) error {
	cfg := fakePostgres().Copy()
	client, server := net.Pipe()
	cfg.DialFunc = func(context.Context, string, string) (net.Conn, error) { return client, nil }
	var end sync.WaitGroup
	defer end.Wait()
	end.Go(func() {
		defer server.Close()
		var n [4]byte
		if _, err := io.ReadFull(server, n[:]); err != nil {
			return
		}
		_, _ = io.CopyN(io.Discard, server, int64(binary.BigEndian.Uint32(n[:]))-4)
		ready := pgMessage('Z', []byte("I"))
		_, _ = server.Write(append(pgMessage('R', []byte{0, 0, 0, 0}), ready...))
		if kind, _, err := pgRead(server); err != nil || kind != 'Q' {
			return
		}
		_, _ = server.Write(append(pgMessage('E', body), ready...))
		_, _ = io.Copy(io.Discard, server)
	})
	defer client.Close()
	conn, err := pgconn.ConnectConfig(context.Background(), cfg)
	if err != nil {
		return err
	}
	_, err = conn.Exec(context.Background(), "select").ReadAll()
	return err
}

var fakePostgres = sync.OnceValue(func() *pgconn.Config {
	cfg, err := pgconn.ParseConfig("postgres://nobody@127.0.0.1:1/none?sslmode=disable")
	if err != nil {
		panic(err)
	}
	return cfg
})

// MySQLError is what the MySQL driver makes of an error packet, as the answer to a statement. The
// state is left out if it does not have 5 bytes.
func MySQLError(number uint16, state, message string) error {
	body := binary.LittleEndian.AppendUint16([]byte{0xff}, number)
	if len(state) == 5 {
		body = append(append(body, '#'), state...)
	} else {
		message = " " + message // the driver reads one byte more
	}
	client, server := net.Pipe()
	cfg := mysql.NewConfig()
	cfg.Logger = &mysql.NopLogger{}
	cfg.DialFunc = func(context.Context, string, string) (net.Conn, error) { return client, nil }
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return err
	}
	var end sync.WaitGroup
	defer end.Wait()
	end.Go(func() {
		defer server.Close()
		if _, err := server.Write(greeting()); err != nil {
			return
		}
		if _, err := myRead(server); err != nil {
			return
		}
		_, _ = server.Write(myPacket(2, []byte{0, 0, 0, 2, 0, 0, 0}))
		if _, err := myRead(server); err != nil {
			return
		}
		_, _ = server.Write(myPacket(1, append(body, message...)))
		_, _ = io.Copy(io.Discard, server)
	})
	defer client.Close()
	db := sql.OpenDB(connector)
	defer db.Close()
	_, err = db.ExecContext(context.Background(), "SELECT 1")
	return err
}

// greeting begins a connection of the MySQL protocol.
func greeting() []byte {
	const salt = "12345678" + "901234567890\x00"
	body := append([]byte{10}, "8.0.0\x00\x01\x00\x00\x00"+salt[:8]+"\x00"...)
	body = append(body, 0x00, 0x82, 45, 2, 0, 0x08, 0x00, 21) // protocol 41, authentication by a plugin
	body = append(body, make([]byte, 10)...)
	return myPacket(0, append(body, salt[8:]+"mysql_native_password\x00"...))
}
