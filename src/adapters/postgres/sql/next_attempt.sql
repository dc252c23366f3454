(
               select case
                          when (g.epoch, {known} + 1) > (f.epoch, f.attempt) then {known} + 1
                          else least(f.attempt / 10000 + 1, 214000) * 10000 + {known} % 10000 + 1
                      end
                 from onceway.forgotten f
           )
