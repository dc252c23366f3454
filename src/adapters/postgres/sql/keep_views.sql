insert into onceway.views (epoch, view)
select u.epoch, u.view from unnest($1::bigint[], $2::jsonb[]) as u(epoch, view) order by u.epoch
on conflict (epoch) do nothing
