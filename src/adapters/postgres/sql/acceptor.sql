select id, version, state from onceway.acceptor
