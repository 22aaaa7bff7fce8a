struct radix {};
