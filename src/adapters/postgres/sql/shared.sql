-- The end of comb.sql and at_risk.sql: where the stretch ended, in each row, and the rows of its shared keys, as in traces.sql.
select (select s.tenant from stretch s order by s.tenant desc, s.key desc limit 1) as through_tenant,
       (select s.key from stretch s order by s.tenant desc, s.key desc limit 1) as through_key,
       (select count(*) from stretch) as looked_at,
       t.*
  from (values (1)) as one
  left join (
      select r.tenant, r.key, {evidence}, {light}
        from shared s
        join onceway.records r on r.tenant = s.tenant and r.key = s.key
       where {audited}
  ) as t on true
 order by t.tenant, t.key, t.origin
