struct deft {};
