select 1::bigint as ord, {columns} from onceway.records r where r.tenant = $1 and r.key = $2
