//! Rows of the log and of the log aside, to and from SQLite.

use rusqlite::{Connection, params};

use crate::Row;

/// Which log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Log {
    /// The database's, which a standby has as its primary.
    Main,
    /// A standby's own.
    Aside,
}

impl Log {
    pub(super) fn insert(self, connection: &Connection, row: &Row) -> rusqlite::Result<()> {
        let sql = match self {
            Log::Main => {
                "INSERT INTO log(number, time, event, label, file, record, sealed, who, about, hash) \
                 VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)"
            }
            Log::Aside => {
                "INSERT INTO aside(number, time, event, label, file, record, sealed, who, about, hash) \
                 VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)"
            }
        };
        let integer =
            |number: u64| i64::try_from(number).map_err(|why| rusqlite::Error::ToSqlConversionFailure(Box::new(why)));
        let values = params![
            integer(row.number)?,
            integer(row.time)?,
            row.event,
            row.label,
            row.file,
            row.record,
            row.sealed,
            row.who,
            row.about,
            row.hash
        ];
        connection.prepare_cached(sql)?.execute(values).map(drop)
    }

    /// Calls `each` with the rows from a number on, until it says no.
    pub(super) fn each(
        self,
        connection: &Connection,
        from: u64,
        mut each: impl FnMut(Row) -> bool,
    ) -> rusqlite::Result<()> {
        let sql = match self {
            Log::Main => "SELECT * FROM log WHERE number >= ?1 ORDER BY number",
            Log::Aside => "SELECT * FROM aside WHERE number >= ?1 ORDER BY number",
        };
        let mut statement = connection.prepare_cached(sql)?;
        let mut rows = statement.query([i64::try_from(from).unwrap_or(i64::MAX)])?;
        while let Some(found) = rows.next()? {
            if !each(row(found)?) {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn some(self, connection: &Connection, from: u64, limit: usize) -> rusqlite::Result<Vec<Row>> {
        let mut rows = Vec::new();
        if limit > 0 {
            self.each(connection, from, |row| {
                rows.push(row);
                rows.len() < limit
            })?;
        }
        Ok(rows)
    }
}

/// A row of a query that has all columns in the table's order.
pub(super) fn row(found: &rusqlite::Row<'_>) -> rusqlite::Result<Row> {
    Ok(Row {
        number: unsigned(found, 0)?,
        time: unsigned(found, 1)?,
        event: found.get(2)?,
        label: found.get(3)?,
        file: found.get(4)?,
        record: found.get(5)?,
        sealed: found.get(6)?,
        who: found.get(7)?,
        about: found.get(8)?,
        hash: found.get(9)?,
    })
}

pub(super) fn unsigned(found: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let number: i64 = found.get(column)?;
    u64::try_from(number).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, number))
}
