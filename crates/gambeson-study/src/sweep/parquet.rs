//! A table as a Parquet file, with what it came from in its metadata.

use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use super::table::{Column, Table, Values};
use super::{Sweep, store};
use crate::VERSION;

/// The file's bytes.
pub(super) fn encode(table: &Table, sweep: &Sweep) -> Vec<u8> {
    write(table, sweep).expect("columns of one length can be written to memory")
}

fn write(table: &Table, sweep: &Sweep) -> Result<Vec<u8>, ParquetError> {
    let fields = table.columns.iter().map(|column| field(column).map(Arc::new)).collect::<Result<_, _>>()?;
    let schema = Type::group_type_builder("results").with_fields(fields).build()?;
    let swept: Vec<(&str, &[String])> =
        sweep.over.iter().map(|over| (over.key.as_str(), over.values.as_slice())).collect();
    let about = vec![
        KeyValue::new("gambeson.version".into(), Some(VERSION.into())),
        KeyValue::new("gambeson.swept".into(), Some(store::json(&swept))),
        KeyValue::new("gambeson.experiment".into(), Some(store::json(&sweep.points[0].experiment))),
    ];
    let properties = WriterProperties::builder()
        .set_created_by(format!("gambeson {VERSION}"))
        .set_key_value_metadata(Some(about))
        .build();
    let mut writer = SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties))?;
    let mut rows = writer.next_row_group()?;
    for column in &table.columns {
        let mut into = rows.next_column()?.expect("the schema has a field for each column");
        match &column.values {
            Values::Text(values) => {
                let bytes: Vec<ByteArray> = values.iter().map(|value| value.as_bytes().to_vec().into()).collect();
                into.typed::<ByteArrayType>().write_batch(&bytes, None, None)?;
            }
            Values::Count(values) => {
                let counts: Vec<i64> = values.iter().map(|&value| value.cast_signed()).collect();
                into.typed::<Int64Type>().write_batch(&counts, None, None)?;
            }
            Values::Number(values) => {
                let numbers: Vec<f64> = values.iter().flatten().copied().collect();
                let defined: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
                into.typed::<DoubleType>().write_batch(&numbers, Some(&defined), None)?;
            }
        }
        into.close()?;
    }
    rows.close()?;
    writer.into_inner()
}

fn field(column: &Column) -> Result<Type, ParquetError> {
    let (physical, logical, repetition) = match column.values {
        Values::Text(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String), Repetition::REQUIRED),
        // Seeds use all 64 bits.
        Values::Count(_) => {
            let unsigned = LogicalType::integer(64, false);
            (Physical::INT64, Some(unsigned), Repetition::REQUIRED)
        }
        Values::Number(_) => (Physical::DOUBLE, None, Repetition::OPTIONAL),
    };
    Type::primitive_type_builder(&column.name, physical).with_logical_type(logical).with_repetition(repetition).build()
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;

    use super::super::tests::{room, sweep};
    use super::*;

    #[test]
    fn a_reader_finds_every_value_and_where_it_came_from() {
        let dir = room("parquet");
        let sweep = sweep(&dir, &["traffic.0.load=0.1,0.2", "security.level=none,queue-pair"], 1).expect("a sweep");
        let outcomes: Vec<_> = sweep.points.iter().map(|point| point.experiment.run().expect("it runs")).collect();
        let table = sweep.table(&outcomes);
        let path = dir.join("results.parquet");
        std::fs::write(&path, encode(&table, &sweep)).expect("it can be written");
        let file = SerializedFileReader::new(File::open(&path).expect("it is there")).expect("it is Parquet");
        let about = file.metadata().file_metadata().key_value_metadata().expect("it says what it came from");
        assert!(about.iter().any(|pair| pair.key == "gambeson.experiment"));
        let rows: Vec<_> = file.get_row_iter(None).expect("it has rows").map(|row| row.expect("a row")).collect();
        assert_eq!(rows.len(), 4);
        for (number, row) in rows.iter().enumerate() {
            for (index, column) in table.columns.iter().enumerate() {
                let cell = match &column.values {
                    Values::Text(_) => row.get_string(index).expect("text").clone(),
                    Values::Count(_) => row.get_ulong(index).expect("a count").to_string(),
                    Values::Number(_) => row.get_double(index).map_or(String::new(), |value| value.to_string()),
                };
                assert_eq!(cell, column.values.cell(number), "{}, row {number}", column.name);
            }
        }
        std::fs::remove_dir_all(dir).expect("it can be removed");
    }
}
