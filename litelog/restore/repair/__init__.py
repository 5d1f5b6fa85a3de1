"""What a restore does where a replica is damaged: other replicas' bytes."""
