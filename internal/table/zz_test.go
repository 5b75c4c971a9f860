package table
import ("testing";"os";"path/filepath";"math/rand/v2";"time";"runtime";"fmt")
func TestZZ(t *testing.T){
 path := filepath.Join(t.TempDir(), "x.parquet")
 if err := Write(path, values([]row{{"a", 1, 2}, {"b", 3, 4}, {"a", 5, 6}}), nil); err != nil { t.Fatal(err) }
 data,_ := os.ReadFile(path)
 fmt.Println(len(data))
 r := rand.New(rand.NewPCG(1, 2))
 p2 := path+"2"
 for i:=0;i<20000;i++ {
  d := append([]byte(nil), data...)
  for k:=0;k<=r.IntN(3);k++ { d[r.IntN(len(d))]=byte(r.Uint32()) }
  os.WriteFile(p2,d,0o644)
  var m0,m1 runtime.MemStats
  s:=time.Now()
  if i%1==0 {runtime.ReadMemStats(&m0)}
  _,err:=read[row](t,p2)
  runtime.ReadMemStats(&m1)
  if dt:=time.Since(s); dt>200*time.Millisecond || m1.TotalAlloc-m0.TotalAlloc>50<<20 { fmt.Println(i,dt,(m1.TotalAlloc-m0.TotalAlloc)>>20,"MB",err); os.WriteFile(fmt.Sprint("/tmp/zz-",i,".parquet"),d,0o644) }
 }
}
