-- Schema, version 5: whose turn it is among those who wait for their accepted requests. Only adds.

-- Each tenant's waiting jobs in their order, so that those of others are found behind any number of one's own. Acceptances wait while it is built:
-- every job is looked at once.
create index jobs_turn on onceway.jobs (tenant, next_at) where state = 1;
