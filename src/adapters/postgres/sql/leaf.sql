-- The leaves of one origin: one writer each, so nothing loops and nothing conflicts. Heartbeats are one row, updated for ever. An answer makes
-- its claim's row about three times as long, and is written into the room that the page has left: no index changes.
create table {records} partition of onceway.records for values in ('{origin}') with (fillfactor = 30);
create table {heartbeats} partition of onceway.heartbeats for values in ('{origin}') with (fillfactor = 20);
