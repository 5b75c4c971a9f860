// Package table keeps the rows of a recording's tables: as JSON lines that
// survive a killed writer while a run is live (Log, ReadLog), and as Parquet
// once it has ended (Write, Read). It knows nothing of what the rows mean, and
// is the only package that knows Parquet.
package table
