jsonb_build_object(
                   'status', o.answer_status, 'length', o.answer_length, 'digest', encode(sha256(o.answer_body), 'hex')
               )
