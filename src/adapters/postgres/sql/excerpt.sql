select d.excerpt from onceway.doubts d where d.tenant = $1 and d.key = $2 and d.excerpt is not null
