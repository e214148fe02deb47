"""A private PostgreSQL with the reference schema, sample data, and the proof that a run is judged by."""
