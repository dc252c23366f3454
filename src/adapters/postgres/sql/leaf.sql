-- The leaves of one origin: one writer each, so nothing loops and nothing conflicts. Heartbeats are one row, updated for ever.
create table {records} partition of onceway.records for values in ('{origin}') with (fillfactor = 90);
create table {heartbeats} partition of onceway.heartbeats for values in ('{origin}') with (fillfactor = 20);
