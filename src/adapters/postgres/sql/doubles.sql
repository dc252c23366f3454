select count(*) as doubles from onceway.journal j where j.kind = 'double'
