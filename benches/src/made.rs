pub struct Stub;
