-- Extraction by a model: an importance that the caller gave is not the model's to change, and an episode that no model
-- could read says so. Rows of before keep their importance.
ALTER TABLE episodic_memory ADD COLUMN importance_given BOOLEAN NOT NULL DEFAULT true;
ALTER TABLE episodic_memory DROP CONSTRAINT episodic_memory_extraction_check;
ALTER TABLE episodic_memory ADD CONSTRAINT episodic_memory_extraction_check
    CHECK (extraction IN ('done', 'pending', 'failed', 'off'));
