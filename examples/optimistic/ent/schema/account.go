// Package schema is what ent generates from.
package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/dialect/entsql"
	"entgo.io/ent/schema"
	"entgo.io/ent/schema/field"
)

// Account is a row with a version.
type Account struct{ ent.Schema }

// Fields are its columns.
func (Account) Fields() []ent.Field {
	return []ent.Field{field.Int64("id"), field.Int64("balance"), field.Int64("version").Default(1)}
}

// Annotations name its table.
func (Account) Annotations() []schema.Annotation {
	return []schema.Annotation{entsql.Table("account")}
}
