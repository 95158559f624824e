"""The database: everything that is a statement or a transaction of it. Only here SQLAlchemy is used."""
