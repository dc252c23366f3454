insert into onceway.views (epoch, view, stored_ms)
select u.epoch, u.view, {start} from unnest($1::bigint[], $2::jsonb[]) as u(epoch, view) order by u.epoch
on conflict (epoch) do nothing
