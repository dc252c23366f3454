-- The next keys of any origin or of the journal, in their order. Both branches end early: each walks an index in that order.
select distinct t.tenant, t.key
  from (
      (
          select distinct o.tenant, o.key
            from onceway.records o
           where (o.tenant, o.key) > ($1::text collate "C", $2::bytea)
           order by o.tenant, o.key
           limit $3::bigint
      )
      union all
      (
          select distinct j.tenant, j.key
            from onceway.journal j
           where j.tenant is not null and (j.tenant, j.key) > ($1::text collate "C", $2::bytea)
           order by j.tenant, j.key
           limit $3::bigint
      )
  ) as t
 order by t.tenant, t.key
 limit $3::bigint
