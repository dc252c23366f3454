-- All doubles, by what explains them; null where a release that did not say it journalled them.
select (j.detail -> 'at_risk')::boolean as at_risk, (j.detail -> 'named')::boolean as named, count(*) as doubles
  from onceway.journal j
 where j.kind = 'double'
 group by 1, 2
